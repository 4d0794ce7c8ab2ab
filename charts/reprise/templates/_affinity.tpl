{{/* One anti-affinity term: (list match-labels all-namespaces) */}}
{{- define "reprise.antiAffinityTerm" -}}
topologyKey: kubernetes.io/hostname
labelSelector:
  matchLabels: {{- index . 0 | nindent 4 }}
{{- if index . 1 }}
namespaceSelector: {}
{{- end }}
{{- end -}}

{{/* Off the machines of executors, and off each other */}}
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
{{- if $rules -}}{{- toYaml (dict "podAntiAffinity" $rules) -}}{{- else -}}{}{{- end -}}
{{- end -}}
