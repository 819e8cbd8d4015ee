#!/bin/sh
# The commands of the image: `demo` as in the Makefile, and every command of `evenhand`.
set -eu
if [ "${1:-}" = demo ]; then
    shift
    export OMP_NUM_THREADS=1 # for each of the two processes
    # Without a network, the container's name has no address, for which torchrun would wait.
    exec torchrun --local_addr 127.0.0.1 --nproc_per_node 2 -m evenhand measure --config demo --report_to none "$@"
fi
exec evenhand "$@"
