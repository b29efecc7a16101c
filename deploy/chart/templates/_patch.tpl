{{- /* Applies one operation of a JSON patch, RFC 6902, to .object in place. A list is added to at its end alone. */ -}}
{{- define "ksvm.patchOne" -}}
{{- $op := .op -}}
{{- $node := .object -}}
{{- $holder := dict -}}
{{- $holderKey := "" -}}
{{- $parts := rest (splitList "/" $op.path) -}}
{{- range initial $parts -}}
{{-   $key := . | replace "~1" "/" | replace "~0" "~" -}}
{{-   if kindIs "slice" $node -}}
{{-     $node = index $node (int $key) -}}
{{-   else -}}
{{-     $holder = $node -}}
{{-     $holderKey = $key -}}
{{-     $node = get $node $key -}}
{{-   end -}}
{{- end -}}
{{- $last := last $parts | replace "~1" "/" | replace "~0" "~" -}}
{{- if and (kindIs "slice" $node) (eq $op.op "add") (eq $last "-") -}}
{{-   $_ := set $holder $holderKey (append $node $op.value) -}}
{{- else if and (kindIs "slice" $node) (eq $op.op "remove") -}}
{{-   $kept := list -}}
{{-   range $index, $item := $node -}}
{{-     if ne $index (int $last) -}}{{- $kept = append $kept $item -}}{{- end -}}
{{-   end -}}
{{-   $_ := set $holder $holderKey $kept -}}
{{- else if and (kindIs "map" $node) (eq $op.op "remove") -}}
{{-   $_ := unset $node $last -}}
{{- else if eq $op.op "test" -}}
{{-   $found := "" -}}
{{-   if kindIs "slice" $node -}}{{- $found = index $node (int $last) -}}{{- else -}}{{- $found = get $node $last -}}{{- end -}}
{{-   if ne (toJson $found) (toJson $op.value) -}}
{{-     fail (printf "the chart is broken: %s of %s is %s" $op.path .object.metadata.name (toJson $found)) -}}
{{-   end -}}
{{- else if and (kindIs "map" $node) (has $op.op (list "add" "replace")) -}}
{{-   $_ := set $node $last $op.value -}}
{{- else -}}
{{-   fail (printf "the chart is broken: it cannot %s %s" $op.op $op.path) -}}
{{- end -}}
{{- end -}}

{{- /* "yes" where .object is what .target of a patch names. */ -}}
{{- define "ksvm.isTarget" -}}
{{- $kind := get .target "kind" -}}
{{- $name := get .target "name" -}}
{{- $selector := get .target "labelSelector" -}}
{{- $isMeant := or (not $kind) (eq $kind .object.kind) -}}
{{- if and $isMeant $name -}}
{{-   $isMeant = regexMatch (printf "^(?:%s)$" $name) .object.metadata.name -}}
{{- end -}}
{{- if and $isMeant $selector -}}
{{-   $pair := splitList "=" $selector -}}
{{-   $isMeant = eq (get (.object.metadata.labels | default dict) (first $pair)) (last $pair) -}}
{{- end -}}
{{- if $isMeant -}}yes{{- end -}}
{{- end -}}

{{- /* Applies .patch, of a Kustomize component, to the list .state.objects. */ -}}
{{- define "ksvm.patch" -}}
{{- $patch := .patch -}}
{{- $kept := list -}}
{{- range $object := .state.objects -}}
{{-   $isTarget := eq "yes" (include "ksvm.isTarget" (dict "target" $patch.target "object" $object)) -}}
{{-   if and $isTarget (not $patch.delete) -}}
{{-     range $patch.operations -}}
{{-       include "ksvm.patchOne" (dict "object" $object "op" (deepCopy .)) -}}
{{-     end -}}
{{-   end -}}
{{-   if not (and $isTarget $patch.delete) -}}{{- $kept = append $kept $object -}}{{- end -}}
{{- end -}}
{{- $_ := set .state "objects" $kept -}}
{{- end -}}
