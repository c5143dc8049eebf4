#!/usr/bin/env bash
# Installs the clients under target/clients: the OpenAI and Anthropic SDKs, Claude Code and Codex, in the versions named here.
# Does nothing where that was done before from the same files.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
place=$(cd "$here/../.." && pwd)/target/clients
made_from=$(cat "$here"/{setup.sh,requirements.txt,package.json,package-lock.json,.npmrc} | sha256sum)

if [[ "$(cat "$place/made_from" 2>/dev/null)" == "$made_from" ]]; then
  exit 0
fi
rm -rf "$place"
mkdir -p "$place"

echo "Installing the clients under target/clients: 1 GB on the disk."
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/requirements.txt"
cp "$here"/{package.json,package-lock.json,.npmrc} "$place"
npm ci --prefix "$place" --no-audit --no-fund --ignore-scripts
# Puts Claude Code's program for this machine where its command points. npm is about to run such scripts only where told to.
node "$place/node_modules/@anthropic-ai/claude-code/install.cjs"
echo "$made_from" >"$place/made_from"
