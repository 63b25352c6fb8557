# Statements on a release for machines: OpenVEX and SLSA provenance. Sourced by release.sh.
# shellcheck shell=bash

# Which known defects of dependencies do not reach users, for scanners: deploy/packaging/openvex.json for the files of this release.
make_vex() {
    local products
    products=$(printf '%s\n' "pkg:generic/criscope@$VERSION" "pkg:deb/criscope/criscope@$VERSION-1" "pkg:rpm/criscope/criscope@$VERSION-1" \
        "pkg:oci/criscope?repository_url=$IMAGE_NAME&tag=$VERSION" | jq -R . | jq -sc .)
    jq -S --arg version "$VERSION" --arg source "$SOURCE" --arg time "$(date -u -d "@$EPOCH" +%Y-%m-%dT%H:%M:%SZ)" --argjson products "$products" '
        ."@id" = "\($source)/releases/download/v\($version)/criscope-\($version).openvex.json" | .timestamp = $time |
        .statements[] |= (.subcomponents as $parts | .products = [$products[] | {"@id": ., subcomponents: $parts}] | del(.subcomponents))
        ' "$REPO/deploy/packaging/openvex.json" > "$OUT/criscope-$VERSION.openvex.json"
}

# An in-toto statement with SLSA provenance (https://slsa.dev/spec/v1.0/provenance) of all files in SHA256SUMS. It is not among them: who
# builds the same bytes elsewhere has another statement.
make_provenance() {
    local digests='' arch
    # shellcheck disable=SC2153
    for arch in "${!PROFILES[@]}"; do digests+="$(sha256sum < "${PROFILES[$arch]}" | cut -d' ' -f1)=$arch "; done
    jq -nS --rawfile sums "$OUT/SHA256SUMS" --arg builder "${CRISCOPE_BUILDER:-$SOURCE/blob/$COMMIT/deploy/release.sh}" \
        --arg source "$SOURCE" --arg commit "$COMMIT" --arg version "$VERSION" --arg epoch "$EPOCH" --arg rustc "$("$RUSTC" --version)" \
        --arg lock "$(sha256sum < "$REPO/Cargo.lock" | cut -d' ' -f1)" --arg arches "${ARCHES[*]}" --arg profiles "$digests" '{
        _type: "https://in-toto.io/Statement/v1",
        subject: [$sums | split("\n")[] | select(. != "") | {name: .[66:], digest: {sha256: .[:64]}}],
        predicateType: "https://slsa.dev/provenance/v1",
        predicate: {
            buildDefinition: {
                buildType: "\($source)/blob/main/docs/RELEASING.md",
                externalParameters: {source: "git+\($source)@refs/tags/v\($version)", architectures: ($arches | split(" "))},
                internalParameters: {rustc: $rustc, SOURCE_DATE_EPOCH: ($epoch | tonumber)},
                resolvedDependencies: ([{uri: "git+\($source)", digest: {gitCommit: $commit}}, {uri: "Cargo.lock", digest: {sha256: $lock}}] +
                    [$profiles | split(" ")[] | select(. != "") | split("=") | {uri: "criscope-\($version)-\(.[1]).profdata", digest: {sha256: .[0]}}])
            },
            runDetails: {builder: {id: $builder}}
        }}' > "$OUT/criscope-$VERSION.intoto.json"
}
