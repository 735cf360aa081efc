#!/bin/sh
# pkgconfig.sh SOURCES PREFIX WORK CC CXX: builds the consumers with what pkg-config says and runs them, against the
# shared library and, with --static, against the archive alone.
set -eu
sources=$1 prefix=$2 work=$3 cc=$4 cxx=$5
mkdir -p "$work"
pc=$(find "$prefix" -name canopy.pc)
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir canopy)
# shellcheck disable=SC2046 # flags are words
{
  "$cc" -std=c11 "$sources/consumer.c" -o "$work/c_shared" $(pkg-config --cflags --libs canopy) -Wl,-rpath,"$libdir"
  "$cxx" -std=c++20 "$sources/consumer.cpp" -o "$work/cxx_shared" $(pkg-config --cflags --libs canopy) -Wl,-rpath,"$libdir"
  "$cc" -std=c11 -static "$sources/consumer.c" -o "$work/c_static" $(pkg-config --static --cflags --libs canopy)
}
for name in c_shared cxx_shared c_static; do "$work/$name"; done
