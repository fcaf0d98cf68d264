# autogemm with CUDA: tunes, verifies, exports and compiles kernels. Needs the NVIDIA container
# toolkit on the host, and no GPU to build.
#
#   docker build -t autogemm .
#   docker run --rm --gpus all -v "$PWD":/data autogemm tune --size 4096
ARG CUDA=12.9.1
FROM nvidia/cuda:${CUDA}-devel-ubuntu24.04

RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

ENV PATH=/opt/autogemm/bin:$PATH \
    AUTOGEMM_DB=/data/autogemm.db

COPY . /src
RUN python3 -m venv /opt/autogemm \
    && pip install --no-cache-dir '/src[cuda12,plot,report,disassembly]' \
    && rm -rf /src

WORKDIR /data
ENTRYPOINT ["autogemm"]
CMD ["--help"]
