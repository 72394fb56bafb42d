# SGLang with sgkv: the engine's own image, and one wheel.
#   python -m build --wheel && docker build -f packaging/docker/sglang.Dockerfile -t sglang-sgkv .
# Then: docker run --gpus all ... python -m sglang.launch_server --model-path MODEL --page-size 64 \
#         --enable-hierarchical-cache --hicache-storage-backend sgkv
ARG SGLANG=v0.5.23
FROM lmsysorg/sglang:${SGLANG}
COPY dist/sgkv-*.whl /tmp/
# The engine's own versions stay: what sgkv needs beside them is small, and pip says so where it would not fit.
# hadolint ignore=DL3013 # the version is that of the wheel, which is built here
RUN wheel=$(echo /tmp/sgkv-*.whl) \
 && python3 -m pip install --no-cache-dir --upgrade-strategy only-if-needed "${wheel}[s3,valkey,codecs,control]" \
 && rm /tmp/sgkv-*.whl \
 && sgkv version
VOLUME /var/lib/sgkv
