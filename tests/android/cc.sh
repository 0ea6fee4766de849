#!/bin/sh
# A compiler of shared libraries for a test phone: cc -shared ... -o LIBRARY SOURCE.c ...
set -eu
out=
for argument in "$@"; do
  shift
  case ${previous:-} in
    -o) out=$argument ;;
  esac
  previous=$argument
  case $argument in
    *.c) source=$argument; set -- "$@" "@OBJECT@" ;;
    *) set -- "$@" "$argument" ;;
  esac
done
@COMPILER@ -c -O1 -fPIC "$source" -o "$out.o"
for argument in "$@"; do
  shift
  if [ "$argument" = "@OBJECT@" ]; then argument=$out.o; fi
  set -- "$@" "$argument"
done
exec @COMPILER@ -nostdlib "$@"
