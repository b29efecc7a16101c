# The image of everything in deploy/: docker build -t ksvm:0.1.0 .
FROM node:24-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
# Install scripts are left out: the only one fetches the Node that is here already.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY src src
RUN node_modules/.bin/tsc -p tsconfig.build.json && npm prune --omit=dev --ignore-scripts --no-audit --no-fund

FROM node:24-slim
ENV NODE_ENV=production
WORKDIR /app
COPY package.json LICENSE ./
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/dist dist
# `ksvm init` installs them.
COPY deploy/base/crds deploy/base/crds
# Nobody in particular, by number, so that runAsNonRoot can be checked. Nothing is written, and no shell is needed.
USER 65532:65532
ENTRYPOINT ["node", "/app/dist/cli/main.js"]
