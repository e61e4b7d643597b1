# backupd for a host that has its data on LVM: what a run needs and no tool that only a developer needs.
#
# Knows: that the host is handed in, as in
#     docker run --rm --privileged --pid=host --network=host -v /dev:/dev -v /run:/run -v /etc/backupd:/etc/backupd … backupd run
# with the data directory and the targets at the paths that they have on the host. Packages and
# versions are listed in .ci/packages.txt (group host) and requirements.txt.
# Built by docker/build backupd, or, where an image registry answers, by `docker build -f docker/backupd.Dockerfile .`
# It wants BuildKit, for the secret, the caches and backupd.Dockerfile.dockerignore (DOCKER_BUILDKIT=1 before Docker 23).

ARG BASE=debian:12
FROM ${BASE} AS wheel

WORKDIR /srv/backupd
COPY .ci/packages .ci/packages.txt .ci/
RUN .ci/packages python
COPY . .
# The secret `authorities` is a file of certificates for a proxy that signs with an authority of its own. It is there
# for this one step and in no layer. Without it pip and uv use the authorities that they bring.
RUN --mount=type=secret,id=authorities --mount=type=cache,target=/root/.cache \
    authorities=/run/secrets/authorities; \
    if [ -s "$authorities" ]; then export SSL_CERT_FILE="$authorities" PIP_CERT="$authorities"; fi; \
    .ci/setup-python && uv=.venv/bin/uv \
    && $uv build --quiet --wheel --no-build-isolation --python .venv/bin/python --out-dir /srv/wheel \
    && $uv venv --quiet --python /usr/bin/python3 /srv/venv \
    && $uv pip sync --quiet --python /srv/venv/bin/python --link-mode copy --require-hashes --compile-bytecode \
        requirements.txt \
    && $uv pip install --quiet --python /srv/venv/bin/python --link-mode copy --no-deps --compile-bytecode \
        /srv/wheel/*.whl

FROM ${BASE}

WORKDIR /srv/backupd
COPY .ci/packages .ci/packages.txt .ci/
RUN .ci/packages host && apt-get clean && rm -rf /var/lib/apt/lists/*
COPY --from=wheel /srv/venv /srv/venv

ENV PATH=/srv/venv/bin:$PATH LANG=C.UTF-8
WORKDIR /root
ENTRYPOINT ["backupd"]
CMD ["--help"]
