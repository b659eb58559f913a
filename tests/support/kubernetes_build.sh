#!/usr/bin/env bash
# Builds kube-apiserver and kube-controller-manager from Debian's source package of Kubernetes, for tests/support/kubernetes_real.py.
# Debian ships only kubectl of it. Needs root once, for the packages; some ten minutes and 6 GB in the folder, 200 MB of which stay.
set -euo pipefail
[ $# = 1 ] || { echo "usage: $0 FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
work=$folder/build
rm -rf "$work"
mkdir -p "$work/lists/partial" "$work/go/src/k8s.io"

export DEBIAN_FRONTEND=noninteractive
# dpkg-dev unpacks sources. reflect2: the copy in the sources breaks maps with Go after 1.17 (the server ends with a fault).
apt-get install -y -qq --no-install-recommends dpkg-dev etcd-server golang-1.19-go golang-github-modern-go-reflect2-dev >/dev/null

# The machine's own sources of packages, with their sources: nothing of the machine is changed.
cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed 's/^Types: deb$/Types: deb-src/' >"$work/from.sources"
sed -n 's/^deb /deb-src /p' /etc/apt/sources.list 2>/dev/null >"$work/from.list" || true
from=$work/from.sources
[ -s "$from" ] || from=$work/from.list
apt=(-o "Dir::Etc::sourcelist=$from" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$work/lists")
apt-get -qq "${apt[@]}" update
cd "$work"
apt-get -qq "${apt[@]}" source --download-only kubernetes
mkdir go/src/k8s.io/kubernetes
tar -xzf kubernetes_*.orig.tar.gz -C go/src/k8s.io/kubernetes --strip-components=1
cd go/src/k8s.io/kubernetes
rm -r vendor/github.com/modern-go/reflect2
cp -rL /usr/share/gocode/src/github.com/modern-go/reflect2 vendor/github.com/modern-go/
rm -f vendor/github.com/modern-go/reflect2/*_test.go

export PATH=/usr/lib/go-1.19/bin:$PATH GOPATH=$work/go GOCACHE=$work/cache GO111MODULE=off CGO_ENABLED=0 GOFLAGS=
# The one file that the sources leave to be generated.
go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
packages=$(grep -rl --include='*.go' '+k8s:openapi-gen=true' pkg cmd staging/src vendor/k8s.io/kube-openapi |
    grep -vE 'zz_generated|/testdata/|_test\.go|sample-|code-generator|/kube-openapi/cmd' | xargs -n1 dirname | sort -u |
    sed -E 's#^(staging/src|vendor)/##; s#^(pkg|cmd)/#k8s.io/kubernetes/\1/#' | grep '^k8s.io' | paste -sd,)
"$work/openapi-gen" --go-header-file hack/boilerplate/boilerplate.generatego.txt -i "$packages" \
    -p k8s.io/kubernetes/pkg/generated/openapi -O zz_generated.openapi -o "$work/go/src" -r "$work/violations"
for program in kube-apiserver kube-controller-manager; do
    nice go build -ldflags '-s -w' -o "$folder/" "./cmd/$program"
done
rm -rf "$work"
