# The lab in a container: `docker run --rm backupd-lab demo` needs no capability, no device and no privilege.
#
# Knows: which base, in which order, what may be cached. Packages and versions are listed in .ci/packages.txt and
# requirements-dev.txt only, and installed by the scripts that install them everywhere else.
# Built by docker/build lab, or, where an image registry answers, by `docker build -f docker/lab.Dockerfile .`
# It wants BuildKit, for the secret, the caches and lab.Dockerfile.dockerignore (DOCKER_BUILDKIT=1 before Docker 23).

ARG BASE=debian:12
FROM ${BASE}

WORKDIR /srv/backupd

COPY .ci/packages .ci/packages.txt .ci/
RUN .ci/packages python check lab && apt-get clean && rm -rf /var/lib/apt/lists/*

COPY . .
# The secret `authorities` is a file of certificates for a proxy that signs with an authority of its own. It is there
# for this one step and in no layer. Without it pip and uv use the authorities that they bring.
RUN --mount=type=secret,id=authorities --mount=type=cache,target=/root/.cache \
    authorities=/run/secrets/authorities; \
    if [ -s "$authorities" ]; then export SSL_CERT_FILE="$authorities" PIP_CERT="$authorities"; fi; \
    .ci/setup-python

# The machine's memory is a file that is mapped executable. A container's /dev/shm forbids that; /tmp does not.
ENV PATH=/srv/backupd/.venv/bin:$PATH LANG=C.UTF-8 TMPDIR=/tmp
WORKDIR /root
ENTRYPOINT ["backupd"]
CMD ["--help"]
