/**
 * The seed of every test that draws at random: the same one in each `make test`, so that a failure comes back; another one where
 * `TEST_SEED` says so, as `make test-long` does.
 */
export const TEST_SEED = Number(process.env["TEST_SEED"] ?? 20_261_129);
