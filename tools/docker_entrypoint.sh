#!/bin/sh
# The commands of the image: `demo` as in the Makefile, and every command of `evenhand`.
set -eu
if [ "${1:-}" = demo ]; then
    shift
    exec torchrun --nproc_per_node 2 -m evenhand measure --config demo --report_to none "$@"
fi
exec evenhand "$@"
