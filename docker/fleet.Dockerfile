# A fleet to look at: control host, database and hosts whose backups are played, each in a container of this image.
#
# Knows: which base, in which order, what may be cached. What each container does is in fleet-start.
# Built by docker/build fleet, or, where an image registry answers, by `docker build -f docker/fleet.Dockerfile .`
# It wants BuildKit, for the secret, the caches and fleet.Dockerfile.dockerignore (DOCKER_BUILDKIT=1 before Docker 23).

ARG BASE=debian:12
FROM ${BASE}

WORKDIR /srv/backupd

COPY .ci/packages .ci/packages.txt .ci/
RUN .ci/packages python fleet demo && apt-get clean && rm -rf /var/lib/apt/lists/*

COPY . .
# The secret `authorities` is a file of certificates for a proxy that signs with an authority of its own. It is there
# for this one step and in no layer. Without it pip and uv use the authorities that they bring.
RUN --mount=type=secret,id=authorities --mount=type=cache,target=/root/.cache \
    authorities=/run/secrets/authorities; \
    if [ -s "$authorities" ]; then export SSL_CERT_FILE="$authorities" PIP_CERT="$authorities"; fi; \
    .ci/setup-python

COPY docker/fleet-start docker/fleet.toml /usr/local/bin/
ENV PATH=/srv/backupd/.venv/bin:$PATH LANG=C.UTF-8
WORKDIR /root
ENTRYPOINT ["fleet-start"]
