{{/* One anti-affinity term: (list match-labels all-namespaces) */}}
{{- define "reprise.antiAffinityTerm" -}}
topologyKey: kubernetes.io/hostname
labelSelector:
  matchLabels: {{- index . 0 | nindent 4 }}
{{- if index . 1 }}
namespaceSelector: {}
{{- end }}
{{- end -}}

{{/* Off the machines of executors, off each other, and to the machines that were asked for */}}
{{- define "reprise.antiAffinity" -}}
{{- $executors := include "reprise.antiAffinityTerm" (list "reprise.dev/role: executor" true) -}}
{{- $replicas := include "reprise.antiAffinityTerm" (list (include "reprise.selector" (list . "operator")) false) -}}
{{- $wanted := list (dict "how" .Values.antiAffinity.executors "term" $executors) (dict "how" .Values.antiAffinity.replicas "term" $replicas) -}}
{{- $required := list -}}
{{- $preferred := list -}}
{{- range $wanted -}}
{{- $term := fromYaml .term -}}
{{- if eq .how "required" -}}
{{- $required = append $required $term -}}
{{- else if eq .how "preferred" -}}
{{- $preferred = append $preferred (dict "weight" 100 "podAffinityTerm" $term) -}}
{{- end -}}
{{- end -}}
{{- $rules := dict -}}
{{- if $required -}}{{- $_ := set $rules "requiredDuringSchedulingIgnoredDuringExecution" $required -}}{{- end -}}
{{- if $preferred -}}{{- $_ := set $rules "preferredDuringSchedulingIgnoredDuringExecution" $preferred -}}{{- end -}}
{{- $affinity := dict -}}
{{- if $rules -}}{{- $_ := set $affinity "podAntiAffinity" $rules -}}{{- end -}}
{{- with .Values.nodeAffinity -}}{{- $_ := set $affinity "nodeAffinity" . -}}{{- end -}}
{{- toYaml $affinity -}}
{{- end -}}

{{/* Spreads of the operator's pods: where a constraint does not say which pods are counted, they are */}}
{{- define "reprise.spread" -}}
{{- $ours := dict "matchLabels" (fromYaml (include "reprise.selector" (list . "operator"))) -}}
{{- $found := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $found = append $found (hasKey . "labelSelector" | ternary . (merge (dict "labelSelector" $ours) .)) -}}
{{- end -}}
{{- toYaml $found -}}
{{- end -}}
