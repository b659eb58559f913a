# The service and the command line. The model's server is an image of its own: see docker-compose.yml.
FROM python:3.13-slim-bookworm AS build
# libhyperscan5: the shipped rules are compiled with it here, so that the service starts at once.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends gcc libc6-dev libhyperscan5 && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY . .
RUN python -m venv /opt/diagnose && /opt/diagnose/bin/pip install --no-cache-dir '.[postgres,sign-in]'

FROM python:3.13-slim-bookworm
# libhyperscan5: the fast engine of the native core. Security fixes of Debian are wanted, so no version is pinned.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends libhyperscan5 && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 diagnose && install -d -o diagnose -g diagnose /data
COPY --from=build /opt/diagnose /opt/diagnose
ENV PATH=/opt/diagnose/bin:$PATH DIAGNOSE_CACHE=/data/cache DIAGNOSE_SERVE_DATA=/data DIAGNOSE_SERVE_HOST=0.0.0.0
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8321
# Another version of libhs than the image's has to compile the rules at the first start.
HEALTHCHECK --start-period=120s --interval=10s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8321/healthz', timeout=4)"]
ENTRYPOINT ["diagnose"]
CMD ["serve"]
