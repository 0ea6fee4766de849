#!/bin/sh
# A compiler of shared libraries for a test phone: cc -shared ... -o LIBRARY SOURCE.c ...
# In two steps, because linking alone knows -nostdlib: else zig would first build a musl of its own.
set -eu
previous=
for argument in "$@"; do
  if [ "$previous" = -o ]; then object=$argument.o; fi
  previous=$argument
done
for argument in "$@"; do
  shift
  case $argument in
    *.c)
      # As a compiler does that is told nothing: what the source does wrong is there to be run.
      @COMPILER@ -c -O0 -fno-sanitize=undefined -fPIC "$argument" -o "$object"
      argument=$object
      ;;
  esac
  set -- "$@" "$argument"
done
exec @COMPILER@ -nostdlib "$@"
