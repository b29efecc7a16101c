{{- /* The Kustomize components that the values stand for, in the order of docs/install.md. */ -}}
{{- define "ksvm.components" -}}
{{- $names := list -}}
{{- if eq .certificates "files" -}}{{- $names = append $names "certificate-files" -}}{{- end -}}
{{- if eq .certificates "secret" -}}{{- $names = append $names "certificate-secret" -}}{{- end -}}
{{- if eq .certificates "cert-manager" -}}{{- $names = append $names "cert-manager" -}}{{- end -}}
{{- if .controlPlaneNodes -}}{{- $names = append $names "control-plane-nodes" -}}{{- end -}}
{{- if .denyUnprovenPrunes -}}{{- $names = append $names "deny-unproven-prunes" -}}{{- end -}}
{{- if .noKubeSystem -}}{{- $names = append $names "no-kube-system" -}}{{- end -}}
{{- $names = append $names "monitoring" -}}
{{- toJson $names -}}
{{- end -}}

{{- /* "yes" where the values leave .object out. */ -}}
{{- define "ksvm.isLeftOut" -}}
{{- $values := .values -}}
{{- $kind := .object.kind -}}
{{- if or
      (eq $kind "Namespace")
      (and (eq $kind "CustomResourceDefinition") (not $values.crds.install))
      (and (eq $kind "NetworkPolicy") (not $values.networkPolicy.enabled))
      (and (eq $kind "PodDisruptionBudget") (lt (int $values.replicas) 2))
      (and (eq $kind "ServiceMonitor") (not $values.monitoring.serviceMonitor))
      (and (eq $kind "PrometheusRule") (not $values.monitoring.prometheusRule))
      (and (eq $kind "ConfigMap") (not $values.monitoring.dashboard))
-}}yes{{- end -}}
{{- end -}}

{{- define "ksvm.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}{{ $image.repository }}@{{ $image.digest }}
{{- else -}}{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* What the values say about the pods of .object. */ -}}
{{- define "ksvm.pods" -}}
{{- $values := .root.Values -}}
{{- $spec := .spec -}}
{{- if $values.image.pullSecrets -}}
{{-   $secrets := list -}}
{{-   range $values.image.pullSecrets -}}{{- $secrets = append $secrets (dict "name" .) -}}{{- end -}}
{{-   $_ := set $spec "imagePullSecrets" $secrets -}}
{{- end -}}
{{- if $values.nodeSelector -}}{{- $_ := set $spec "nodeSelector" $values.nodeSelector -}}{{- end -}}
{{- range $spec.containers -}}
{{-   $_ := set . "image" (include "ksvm.image" $.root) -}}
{{-   if $values.image.pullPolicy -}}{{- $_ := set . "imagePullPolicy" $values.image.pullPolicy -}}{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Flags that Services, probes and roles of the chart rest on. */ -}}
{{- define "ksvm.assertArgs" -}}
{{- range .Values.extraArgs -}}
{{-   if regexMatch "^--(webhook-port|health-port|webhook-host|health-host|namespace|cert-dir|cert-secret|certificates|service)([= ]|$)" . -}}
{{-     fail (printf "cannot pass %s: the chart sets it" .) -}}
{{-   end -}}
{{- end -}}
{{- end -}}

{{- /* The flags of `ksvm controller` that `ksvm certs` has as well. A test compares them with the program. */ -}}
{{- define "ksvm.certificateFlags" -}}
kubeconfig|context|server|as|as-group|as-uid|log-level|log-format|v|webhook-url|cluster-domain|extra-names|ca-lifetime|serving-lifetime|renew-before|apiserver-dwell|replica-dwell|replica-endpoints|apiserver-endpoints
{{- end -}}

{{- /* Gives the containers of .spec those of extraArgs that .flags names. */ -}}
{{- define "ksvm.shareArgs" -}}
{{- $pattern := printf "^--(%s)(=|$)" .flags -}}
{{- $shared := list -}}
{{- range .root.Values.extraArgs -}}
{{-   if regexMatch $pattern . -}}{{- $shared = append $shared . -}}{{- end -}}
{{- end -}}
{{- range .spec.containers -}}
{{-   $_ := set . "args" (concat .args $shared) -}}
{{- end -}}
{{- end -}}

{{- /* What the values say about .object, in place. */ -}}
{{- define "ksvm.adapt" -}}
{{- $values := .root.Values -}}
{{- $object := .object -}}
{{- if eq $object.kind "Deployment" -}}
{{-   include "ksvm.pods" (dict "root" .root "spec" $object.spec.template.spec) -}}
{{- else if eq $object.kind "CronJob" -}}
{{-   include "ksvm.pods" (dict "root" .root "spec" $object.spec.jobTemplate.spec.template.spec) -}}
{{- end -}}
{{- if and (eq $object.kind "Deployment") (eq $object.metadata.name "ksvm-controller") -}}
{{-   $_ := set $object.spec "replicas" $values.replicas -}}
{{-   $container := first $object.spec.template.spec.containers -}}
{{-   $args := $container.args -}}
{{-   if $values.only.resources -}}
{{-     $args = append $args (printf "--trigger-only-resources=%s" (join "," $values.only.resources)) -}}
{{-   end -}}
{{-   $_ := set $container "args" (concat $args $values.extraArgs) -}}
{{-   if $values.resources -}}{{- $_ := set $container "resources" $values.resources -}}{{- end -}}
{{- else if and (eq $object.kind "NetworkPolicy") (eq $object.metadata.name "ksvm") -}}
{{-   $toServers := first $object.spec.egress -}}
{{-   range $values.networkPolicy.apiServerPorts -}}
{{-     $_ := set $toServers "ports" (append $toServers.ports (dict "protocol" "TCP" "port" .)) -}}
{{-   end -}}
{{- else if and (has $object.kind (list "ServiceMonitor" "PrometheusRule")) $values.monitoring.labels -}}
{{-   $_ := set $object.metadata "labels" (merge (deepCopy ($object.metadata.labels | default dict)) $values.monitoring.labels) -}}
{{- else if and (eq $object.kind "ClusterRole") (eq $object.metadata.name "system:storage-migrator") $values.only.resources -}}
{{-   $_ := set $object "rules" $values.only.rules -}}
{{- else if and (eq $object.kind "CustomResourceDefinition") $values.crds.keep -}}
{{-   $_ := set $object.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") ($object.metadata.annotations | default dict)) -}}
{{- else if eq $object.kind "CronJob" -}}
{{-   include "ksvm.shareArgs" (dict "root" .root "spec" $object.spec.jobTemplate.spec.template.spec "flags" (include "ksvm.certificateFlags" .root)) -}}
{{- end -}}
{{- end -}}
