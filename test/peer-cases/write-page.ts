import { writeFileSync } from "node:fs";
import { ALL_PEERS, PEER_PAGE } from "./all-peers.ts";
import { peerPage } from "./peer-page.ts";

writeFileSync(PEER_PAGE, peerPage(ALL_PEERS));
