# vLLM with sgkv: the engine's own image, and one wheel.
#   python -m build --wheel && docker build -f packaging/docker/vllm.Dockerfile -t vllm-sgkv .
# Then: docker run --gpus all ... --kv-transfer-config "$(sgkv vllm-args ...)"
ARG VLLM=v0.32.0
FROM vllm/vllm-openai:${VLLM}
COPY dist/sgkv-*.whl /tmp/
# hadolint ignore=DL3013 # the version is that of the wheel, which is built here
RUN wheel=$(echo /tmp/sgkv-*.whl) \
 && python3 -m pip install --no-cache-dir --upgrade-strategy only-if-needed "${wheel}[s3,valkey,codecs,control]" \
 && rm /tmp/sgkv-*.whl \
 && sgkv version
VOLUME /var/lib/sgkv
