# The node's daemon, the controller and the router: no engine, no GPU.
#   python -m build --wheel && docker build -f packaging/docker/node.Dockerfile -t sgkv .
FROM python:3.12-slim-bookworm
RUN useradd --uid 10001 --create-home sgkv \
 && install -d -o sgkv -g sgkv /run/sgkv /var/lib/sgkv
COPY dist/sgkv-*.whl /tmp/
# hadolint ignore=DL3013 # the version is that of the wheel, which is built here
RUN wheel=$(echo /tmp/sgkv-*.whl) \
 && python3 -m pip install --no-cache-dir "${wheel}[s3,valkey,codecs,control]" \
 && rm /tmp/sgkv-*.whl \
 && sgkv version
USER 10001
VOLUME /var/lib/sgkv
ENTRYPOINT ["sgkv"]
CMD ["node", "--config", "/etc/sgkv/sgkv.yaml"]
