#!/usr/bin/env bash
# Build examples/cpp/kws.cc into the folder that is given, against ONNX Runtime's C API.
#
#   examples/cpp/build.sh build/cpp
#
# Header: the one in $ONNXRUNTIME_INCLUDE, or the system's (Debian 13 and newer: apt-get install libonnxruntime-dev), or on
# an older Debian that of Debian 13's package, which apt fetches and which is unpacked beside the program; the C API is
# the same for all systems, and newer libraries serve older headers.
# Library: the system's, or else the one that the Python package onnxruntime holds.
set -euo pipefail
out=$(mkdir -p "${1:?where to? build.sh FOLDER}" && cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-python3}

fetch_header() { # into $out/include, by apt, without touching the system's own lists
  local apt=$out/apt
  mkdir -p "$apt"/lists/partial "$apt"/archives/partial
  local mirror="" # the one that this system is set up with
  if command -v apt-get > /dev/null; then
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | awk '/\/debian\/?$/ && !n++')
  fi
  [ -n "$mirror" ] || { echo "no mirror of Debian is set up here; expected onnxruntime's headers in ONNXRUNTIME_INCLUDE" >&2; exit 2; }
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror trixie main" > "$apt/sources.list"
  local options=(-qq -o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$apt/lists"
    -o "Dir::Cache=$apt" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update
  (cd "$apt" && apt-get "${options[@]}" download libonnxruntime-dev && dpkg -x libonnxruntime-dev_*.deb unpacked)
  cp -r "$apt/unpacked/usr/include/onnxruntime" "$out/include"
  rm -r "$apt"
}

includes=(-I "${ONNXRUNTIME_INCLUDE:-/usr/include/onnxruntime}")
if [ ! -f "${includes[1]}/onnxruntime_c_api.h" ]; then
  [ -f "$out/include/onnxruntime_c_api.h" ] || fetch_header
  includes=(-I "$out/include")
fi

# Debian's users have no /sbin in their PATH, and not every system has ldconfig.
library=$({ PATH=$PATH:/sbin:/usr/sbin ldconfig -p 2>/dev/null || true; } | awk '/libonnxruntime\.so/ && !n++ { print $NF }')
if [ -z "$library" ]; then
  library=$("$python" -c 'import pathlib, onnxruntime; print(*sorted(pathlib.Path(onnxruntime.__file__).parent.glob("capi/libonnxruntime.so.*")))' 2>/dev/null || true)
  [ -n "$library" ] || { echo "no libonnxruntime: apt-get install libonnxruntime-dev, or pip install onnxruntime" >&2; exit 2; }
fi

ln -sf "$library" "$out/libonnxruntime.so.1" # the name by which the program asks for it

"${CXX:-c++}" -std=c++17 -O2 -Wall -Wextra -Werror "${includes[@]}" "$here/kws.cc" -o "$out/kws" \
  "$library" -Wl,-rpath,'$ORIGIN'
echo "$out/kws"
