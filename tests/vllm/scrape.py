"""Reads Prometheus text from a metrics page."""

import re
import urllib.request

SAMPLE = re.compile(r"([^\s{]+)(?:\{(.*)\})? (\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')


def scrape(base):
    """The samples at `base`/metrics, each as its name, its labels and its value."""
    with urllib.request.urlopen(f"{base}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    matches = (SAMPLE.match(line) for line in lines if line and not line.startswith("#"))
    return [(match[1], dict(LABEL.findall(match[2] or "")), float(match[3])) for match in matches if match]


def total(samples, name, **labels):
    """The sum of the samples of that name which carry these labels."""
    return sum(value for found, has, value in samples if found == name and labels.items() <= has.items())


def cache_config(base):
    """What the engine of one rank at `base` says of its KV cache, as text by name."""
    [labels] = [labels for name, labels, _ in scrape(base) if name == "vllm:cache_config_info"]
    return labels
