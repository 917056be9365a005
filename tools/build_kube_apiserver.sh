#!/usr/bin/env bash
# Builds kube-apiserver 1.20.2 and fetches etcd, both from Debian's packages, for the tests of the admission webhook:
#
#   tools/build_kube_apiserver.sh FOLDER
#   KUBEBUILDER_ASSETS=FOLDER/bin pytest packages/integrations/tests/kubernetes
#
# Debian has no package of the API server, but its source package `kubernetes` holds all of it with its libraries.
# Takes about 6 minutes of 2 cores, 2.5 GB of disk, and apt with root's rights; nothing is installed.
set -euo pipefail
mkdir -p "${1:?usage: build_kube_apiserver.sh FOLDER}"
cd "$1"
folder=$PWD

# Sources beside the packages that this machine's apt knows, in lists of our own.
mkdir -p lists/partial sources packages bin
for list in /etc/apt/sources.list.d/*.sources; do
    sed 's/^Types: deb$/Types: deb-src/' "$list" > "sources/$(basename "$list")"
done
apt_source=(apt-get -qq -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$folder/sources"
    -o "Dir::State::lists=$folder/lists")
"${apt_source[@]}" update
"${apt_source[@]}" source --download-only kubernetes
apt-get -qq download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server
for package in *.deb; do dpkg -x "$package" packages; done
ln -sf "$folder/packages/usr/bin/etcd" bin/etcd

export GOROOT=$folder/packages/usr/lib/go-1.19 GOPATH=$folder/go GOCACHE=$folder/cache
export GO111MODULE=off GOPROXY=off CGO_ENABLED=0 PATH=$folder/packages/usr/lib/go-1.19/bin:$PATH
tree=$GOPATH/src/k8s.io/kubernetes
if [ ! -d "$tree" ]; then
    mkdir -p "$tree"
    tar xzf kubernetes_*.orig.tar.gz -C "$tree" --strip-components=1
fi
cd "$tree"

# reflect2 of that time ends Go 1.18 and newer with a fault: the newer one is a package of its own.
old=vendor/github.com/modern-go/reflect2
new=$folder/packages/usr/share/gocode/src/github.com/modern-go/reflect2
rm -f $old/*.go $old/*.s
cp "$new"/*.go "$new"/*.s $old/
rm -f $old/*_test.go

# What the API server says of its types is generated: the tarball comes without it.
go build -o "$folder/bin/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
types=$(grep -rl --include='*.go' '+k8s:openapi-gen=' staging/src/k8s.io pkg cmd | xargs -n1 dirname | sort -u |
    grep -v -e code-generator -e sample-apiserver -e testdata |
    sed 's#^staging/src/#k8s.io/kubernetes/vendor/#; s#^pkg/#k8s.io/kubernetes/pkg/#; s#^cmd/#k8s.io/kubernetes/cmd/#')
common=$(printf 'k8s.io/kubernetes/vendor/k8s.io/apimachinery/pkg/%s\n' apis/meta/v1 runtime version)
generate() {
    "$folder/bin/openapi-gen" --logtostderr -i "$(tr '\n' , <<< "$1" | sed 's/,$//')" -p "$2" -O zz_generated.openapi \
        -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$folder/violations" --output-base "$GOPATH/src"
}
generate "$types" k8s.io/kubernetes/pkg/generated/openapi
for part in kube-aggregator apiextensions-apiserver; do
    generate "$common"$'\n'"$(grep "vendor/k8s.io/$part/" <<< "$types")" \
        "k8s.io/kubernetes/staging/src/k8s.io/$part/pkg/generated/openapi"
done

flags="-s -w"
for package in component-base/version client-go/pkg/version; do
    for fact in gitVersion=v1.20.2 gitMajor=1 gitMinor=20; do
        flags="$flags -X k8s.io/kubernetes/vendor/k8s.io/$package.$fact"
    done
done
go build -ldflags "$flags" -o "$folder/bin/kube-apiserver" ./cmd/kube-apiserver
rm -f "$folder/bin/openapi-gen"
"$folder/bin/kube-apiserver" --version
