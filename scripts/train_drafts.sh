#!/usr/bin/env bash
# Trains the drafts that ship with draftsmith again: FOLDER SMOLLM2_GGUF GEMMA_GGUF. Wants one GPU (an H200: about 25 and
# 10 minutes) and `pip install 'draftsmith[builder,train]'`. The drafts lie in FOLDER/<name>/draft afterwards.
set -euo pipefail
folder=${1:?folder} smollm2=${2:?SmolLM2-135M-Instruct.Q4_1.gguf} gemma=${3:?gemma-3-270m-q4_k_m.gguf}

build-engine train-draft "$smollm2" --output "$folder/smollm2-135m-instruct" --tokens 32000000 --text-seconds 235 \
    --max-steps 100000 --max-seconds 1150 --num-steps 5 --ranking-steps 10000 --ranking-seconds 12 \
    --intermediate-size 1536 --rank 72 --resume
build-engine train-draft "$gemma" --output "$folder/gemma-3-270m" --tokens 24000000 --text-seconds 110 \
    --max-steps 100000 --max-seconds 400 --ranking-steps 10000 --ranking-seconds 12 \
    --intermediate-size 1024 --rank 40 --loss-rows 8192 --resume
