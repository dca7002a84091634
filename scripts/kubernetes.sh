#!/bin/sh
# Builds a Kubernetes control plane and a kubelet for the tests in tests/kubernetes, and starts nothing.
#
#   sh scripts/kubernetes.sh
#
# No package has these programs, but the source package `kubernetes` of Debian 12 does, with everything that it needs.
# It is built with Debian's Go 1.19. All packages come from this host's mirror, are checked by apt against its keys, and
# are unpacked, not installed: the host is not changed. The result is kept in /var/cache/skyward-tests/kubernetes-VERSION,
# beside Debian's etcd, kubectl and busybox: 400 MB. The build takes about 10 minutes on 2 cores, at the lowest priority,
# and 3 GB of disk meanwhile. Needs root, apt-get with a Debian mirror, dpkg-dev and flock.
set -eu

release=bookworm
kept=/var/cache/skyward-tests
keys=/usr/share/keyrings/debian-archive-keyring.gpg
programs='kube-apiserver kube-controller-manager kube-scheduler kubelet'

fail() { printf 'kubernetes.sh: %s\n' "$*" >&2; exit 1; }
say() { printf '%s\n' "$*" >&2; }

for command in apt-get dpkg-source flock unshare; do
  command -v "$command" >/dev/null || fail "no \`$command\`: install apt, dpkg-dev and util-linux."
done
[ -r "$keys" ] || fail "no $keys: install debian-archive-keyring."
# shellcheck disable=SC2016 # apt's own variable
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Component: main' 'Origin: Debian' |
  grep -v security | head -n 1)
[ -n "$mirror" ] || fail "apt-get of this host knows no Debian mirror."
mkdir -p "$kept" 2>/dev/null || :
[ -w "$kept" ] || fail "$kept is not writable: run it as root."

exec 9>"$kept/kubernetes.lock"
flock 9

made=$kept/kubernetes.new
rm -rf "$made"
trap 'rm -rf "$made"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p "$made/apt/lists/partial" "$made/apt/archives/partial" "$made/apt/parts" "$made/packages" "$made/unpacked" \
  "$made/kept/bin"

# An apt of its own: other sources and lists than the host's.
cat >"$made/apt/conf" <<END
Dir::Etc::sourcelist "$made/apt/sources";
Dir::Etc::sourceparts "$made/apt/parts";
Dir::State::lists "$made/apt/lists";
Dir::Cache::archives "$made/apt/archives";
Dir::Cache::srcpkgcache "";
Dir::Cache::pkgcache "";
APT::Sandbox::User "root";
END
for kind in deb deb-src; do
  printf '%s [signed-by=%s] %s %s main\n' "$kind" "$keys" "$mirror" "$release"
done >"$made/apt/sources"
export APT_CONFIG="$made/apt/conf"
apt-get -qq update || fail "the package lists of $release could not be fetched from the mirror of this host."

version=$(apt-cache showsrc kubernetes | sed -n 's/^Version: //p' | head -n 1)
result=$kept/kubernetes-$version
if [ -d "$result" ]; then
  say "It is in $result already."
  exit 0
fi

say "Fetching the sources of Kubernetes $version, and Go"
cd "$made/packages"
apt-get -qq --download-only source "kubernetes=$version"
apt-get -qq download golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev \
  etcd-server kubernetes-client busybox-static
for package in *.deb; do
  dpkg -x "$package" "$made/unpacked"
done
export GOPATH="$made/go" GOROOT="$made/unpacked/usr/lib/go-1.19" GOCACHE="$made/cache" HOME="$made" TMPDIR="$made"
export GO111MODULE=off CGO_ENABLED=0 GOFLAGS=''
sources=$GOPATH/src/k8s.io/kubernetes
mkdir -p "${sources%/*}"
dpkg-source --no-check -x ./*.dsc "$sources" >/dev/null # apt has checked it
cd "$sources"

# The vendored reflect2 crashes with Go 1.18 and newer: at the first PATCH.
rm -r vendor/github.com/modern-go/reflect2
cp -R "$made/unpacked/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/

# This version, unlike later ones, deletes a pod only after its sandbox was collected as garbage: once a minute.
sed -i 's/\(ContainerGCPeriod *= *time\)\.Minute/\1.Second/' pkg/kubelet/kubelet.go

# The API description, which the API server compiles in, is not in the source package.
say 'Generating the API description'
go() { nice -n 19 "$GOROOT/bin/go" "$@"; }
go build -o "$made/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
inputs=$(grep -rl --include='*.go' '+k8s:openapi-gen=' pkg staging/src/k8s.io | grep -v -e _test.go -e /testdata/ |
  grep -v -e staging/src/k8s.io/code-generator -e staging/src/k8s.io/sample-apiserver | xargs -n 1 dirname | sort -u |
  sed -e 's,^staging/src/,vendor/,' -e 's,^,k8s.io/kubernetes/,' | paste -s -d , -)
nice -n 19 "$made/openapi-gen" --logtostderr -i "$inputs" -p k8s.io/kubernetes/pkg/generated/openapi \
  -O zz_generated.openapi -h vendor/k8s.io/code-generator/hack/boilerplate.go.txt -r "$made/violations"

say "Building $programs"
number=${version#*really}
number=${number%%-*}
about=k8s.io/kubernetes/vendor/k8s.io/component-base/version
minor=${number#*.}
for program in $programs; do
  go build -o "$made/kept/bin/$program" -ldflags "-s -w -X $about.gitVersion=v$number -X $about.gitMajor=${number%%.*} \
    -X $about.gitMinor=${minor%%.*}" "./cmd/$program"
done
cp "$made/unpacked/usr/bin/etcd" "$made/unpacked/usr/bin/kubectl" "$made/unpacked/bin/busybox" "$made/kept/bin/"
mv "$made/kept" "$result"
say "It is in $result."
