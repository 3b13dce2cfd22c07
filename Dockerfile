# Both halves of BatchWeave in one image: the `batchweave` command (Node) and the Python package. Runs as a user without rights.
#   docker build -t batchweave .
#   docker run --rm batchweave --help
FROM node:22-bookworm-slim AS build
WORKDIR /build
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json ./
COPY . .
RUN npm run -s build && npm pack --silent --ignore-scripts --pack-destination /tmp

FROM node:22-bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends python3 python3-venv tini \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /tmp/batchweave-*.tgz /tmp/batchweave.tgz
# In the root folder, where pipeline files find it from wherever they are mounted. Add what pipelines need: --build-arg NODE_PACKAGES="sharp hyparquet".
ARG NODE_PACKAGES="tsx"
RUN npm install --prefix / --omit=dev /tmp/batchweave.tgz ${NODE_PACKAGES} && rm /tmp/batchweave.tgz
COPY python /opt/python
# Add what your transforms need: --build-arg PYTHON_PACKAGES="transformers pillow".
ARG PYTHON_PACKAGES=""
RUN python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir "/opt/python[cloud,metrics]" numpy ${PYTHON_PACKAGES}
ENV PATH=/opt/venv/bin:/node_modules/.bin:$PATH
RUN groupadd --gid 10001 batchweave && useradd --uid 10001 --gid 10001 --create-home batchweave
USER 10001:10001
WORKDIR /home/batchweave
# tini passes signals on: a process that is told to stop gives its lanes up at once.
ENTRYPOINT ["tini", "--", "batchweave"]
CMD ["--help"]
