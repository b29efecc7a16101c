# The image of everything in deploy/: docker build -t ksvm:0.1.0 .
# `make pin-images` writes the digests of both images behind their tags. With them the image can be built again, byte by byte:
#   docker build --build-arg SOURCE_DATE_EPOCH=0 --output type=image,name=ksvm:0.1.0,rewrite-timestamp=true .
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
# Install scripts are left out: the only one fetches the Node that is here already.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY src src
COPY tools/build.ts tools/build.ts
COPY LICENSE ./
# `ksvm init` installs them.
COPY deploy/base/crds deploy/base/crds
# Files of the checkout have the modes that the umask of its user gave them. Any user may run the image, so any may read it.
RUN node tools/build.ts && chmod -R u=rwX,go=rX .

# Node and what it needs: no shell, no package manager, no npm.
FROM gcr.io/distroless/nodejs24-debian13:nonroot
ENV NODE_ENV=production
WORKDIR /app
COPY --from=build /app/LICENSE ./
COPY --from=build /app/dist dist
COPY --from=build /app/deploy deploy
# A user without a name, by number, so that runAsNonRoot can be checked; any other does as well. Nothing is written.
USER 65532:65532
ENTRYPOINT ["/nodejs/bin/node", "/app/dist/ksvm.js"]
