#!/usr/bin/env bash
# Builds etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kubectl of one Kubernetes version
# from their Go modules. Nothing prebuilt is downloaded: only the Go module proxy is needed.
#
# usage: build.sh [OUTPUT_DIR]        about 8 minutes on 2 idle cores the first time, then nothing to do
#   OUTPUT_DIR  default: ${DRACM_CACHE:-$HOME/.cache/dra-controller-manager}/v<kubernetes>-etcd<etcd>
# env: KUBERNETES_VERSION, ETCD_VERSION, GOTOOLCHAIN
#
# Needs Go >= 1.26 whose toolchain switch may fetch the release the modules ask for, and openssl, which the
# control plane needs to start. A second caller waits for the first. The binaries count only once `.complete`
# is there, which is written last: after a killed build the next one goes on where Go's build cache stands.
set -euo pipefail
kubernetes=${KUBERNETES_VERSION:-1.37.2} etcd=${ETCD_VERSION:-3.7.3}
export GOTOOLCHAIN=${GOTOOLCHAIN:-go1.27.3} GOFLAGS=-mod=mod CGO_ENABLED=0
out=${1:-${DRACM_CACHE:-$HOME/.cache/dra-controller-manager}/v$kubernetes-etcd$etcd}
mkdir -p "$out" && out=$(cd "$out" && pwd)
binaries=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl)
complete="kubernetes $kubernetes, etcd $etcd"

built() {
	[ "$(cat "$out/.complete" 2>/dev/null)" = "$complete" ] || return 1
	for name in "${binaries[@]}"; do [ -x "$out/$name" ] || return 1; done
}
die() { echo "build.sh: $*" >&2 && exit 1; }

built && exit 0
for tool in go openssl flock; do command -v "$tool" >/dev/null || die "$tool is not on the PATH"; done
local_go=$(cd / && GOTOOLCHAIN=local go env GOVERSION)
printf 'go1.26\n%s\n' "$local_go" | sort -CV || die "Go 1.26 or newer is needed, found $local_go"

exec 9>"$out/.lock"
if ! flock -n 9; then
	echo "build.sh: another build of $out is running, waiting for it" >&2
	flock 9
	built && exit 0
fi
rm -f "$out/.complete"
echo "build.sh: building Kubernetes $kubernetes and etcd $etcd into $out (about 8 minutes on 2 idle cores)" >&2
stage=$out/.stage && rm -rf "$stage" && mkdir -p "$stage"

# module NAME: makes an empty module in $out/src/NAME and goes there, unless an earlier run completed it.
module() {
	local dir=$out/src/$1
	mkdir -p "$dir" && cd "$dir"
	[ ! -f .tidy ] || return 1
	rm -f go.mod go.sum
}

if module kubernetes; then
	cat >tools.go <<-'GO'
		//go:build tools

		package tools

		import (
			_ "k8s.io/kubernetes/cmd/kube-apiserver"
			_ "k8s.io/kubernetes/cmd/kube-controller-manager"
			_ "k8s.io/kubernetes/cmd/kube-scheduler"
			_ "k8s.io/kubernetes/cmd/kubectl"
			_ "k8s.io/kubernetes/test/integration/dra"
		)
	GO
	go mod init controlplane
	go mod edit -require "k8s.io/kubernetes@v$kubernetes"
	# The module's own go.mod points its staging modules at v0.0.0; map them to the published ones.
	source=$(go mod download -json "k8s.io/kubernetes@v$kubernetes" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
	grep -oE '^\s*k8s.io/[a-z-]+ v0\.0\.0$' "$source/go.mod" | while read -r name _; do
		go mod edit -replace "$name=$name@v0.${kubernetes#1.}"
	done
	go mod tidy -e
	touch .tidy
fi
version=k8s.io/component-base/version
flags="-s -w -X $version.gitVersion=v$kubernetes -X $version.gitMajor=1"
flags+=" -X $version.gitMinor=$(cut -d. -f2 <<<"$kubernetes") -X k8s.io/client-go/pkg/version.gitVersion=v$kubernetes"
for name in kube-apiserver kube-controller-manager kube-scheduler kubectl; do
	echo "build.sh: $name" >&2
	go build -ldflags "$flags" -o "$stage/$name" "k8s.io/kubernetes/cmd/$name"
done

if module etcd; then
	printf '//go:build tools\n\npackage tools\n\nimport _ "go.etcd.io/etcd/server/v3"\n' >tools.go
	go mod init etcdbuild
	go get "go.etcd.io/etcd/server/v3@v$etcd"
	go mod tidy -e
	touch .tidy
fi
echo "build.sh: etcd" >&2
go build -ldflags "-s -w" -o "$stage/etcd" go.etcd.io/etcd/server/v3

mv "$stage"/* "$out/" && rmdir "$stage"
echo "$complete" >"$out/.complete"
