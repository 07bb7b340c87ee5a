#!/usr/bin/env bash
# Makes FOLDER/python: an aarch64 Python under qemu-user with the core dependencies and beamwood, its core built here.
#
#   native/aarch64.sh FOLDER [PYTHON]
#
# PYTHON is one of this machine with pip and nanobind, of a version that Debian has. Needs Debian's apt-get,
# g++-aarch64-linux-gnu and qemu-user; nothing is installed outside FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "$1"
folder=$(cd "$1" && pwd) python=${2:-python3}
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')

# Debian's Python, unpacked.
mkdir -p "$folder"/{apt/lists/partial,apt/archives/partial,debs,root}
touch "$folder/apt/status"
apt=(apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o APT::Sandbox::User=root
     -o Dir::State="$folder/apt" -o Dir::State::status="$folder/apt/status" -o Dir::Cache="$folder/apt")
"${apt[@]}" update
(cd "$folder/debs" && "${apt[@]}" download libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8 libssl3 libbz2-1.0 liblzma5 \
  libsqlite3-0 libuuid1 "python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib")
for package in "$folder"/debs/*.deb; do dpkg -x "$package" "$folder/root"; done

# The core dependencies, and what the tests of the kernels need.
platforms=()
for glibc in manylinux2014 manylinux_2_17 manylinux_2_24 manylinux_2_27 manylinux_2_28; do
  platforms+=(--platform "${glibc}_aarch64")
done
mapfile -t needed < <("$python" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"], "pytest", "hypothesis", sep="\n")')
"$python" -m pip install --quiet --upgrade --target "$folder/site" --only-binary :all: --python-version "$version" \
  "${platforms[@]}" --constraint constraints.txt "${needed[@]}"

# beamwood, its core built for aarch64. Headers of Python are the same on both.
rm -rf "$folder/package"
mkdir -p "$folder/package"
cp -r src/beamwood "$folder/package/"
rm -f "$folder"/package/beamwood/_native*
cmake -S native -B "$folder/core" -DCMAKE_TOOLCHAIN_FILE="$PWD/native/aarch64.cmake" -DPython_EXECUTABLE="$(command -v "$python")" \
  -DPython_INCLUDE_DIR="$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')" \
  -DBEAMWOOD_OUTPUT="$folder/package/beamwood"
cmake --build "$folder/core" --parallel 2
# Its name is that of the Python which built it.
mv "$folder"/package/beamwood/_native.*.so "$folder/package/beamwood/_native.so"

cat > "$folder/python" <<RUN
#!/bin/sh
exec env PYTHONPATH="$folder/package:$folder/site" qemu-aarch64 -L "$folder/root" "$folder/root/usr/bin/python$version" "\$@"
RUN
chmod +x "$folder/python"
"$folder/python" -c 'from beamwood.kernels import active_kernels as a; assert a()["levels"] == ["generic"], a()'
echo "$folder/python runs beamwood on aarch64"
