{{- define "reprise.name" -}}
{{- .Values.nameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "reprise.operator" -}}
{{- include "reprise.name" . }}-operator
{{- end -}}

{{- define "reprise.zookeeper" -}}
{{- include "reprise.name" . }}-zookeeper
{{- end -}}

{{- define "reprise.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
app.kubernetes.io/name: reprise
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: reprise
{{- end -}}

{{/* Labels that select the pods of one component: (list . "operator") */}}
{{- define "reprise.selector" -}}
app.kubernetes.io/name: reprise
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "reprise.image" -}}
{{- $name := .Values.image.repository -}}
{{- with .Values.image.registry }}{{- $name = printf "%s/%s" . $name -}}{{- end -}}
{{- if .Values.image.digest -}}
{{ $name }}@{{ .Values.image.digest }}
{{- else -}}
{{ $name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "reprise.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "reprise.operator" .) -}}
{{- end -}}

{{- define "reprise.priorityClass" -}}
{{- .Values.priorityClass.name | default (and .Values.priorityClass.create (include "reprise.operator" .)) | default "" -}}
{{- end -}}

{{/* The namespaces whose topologies are looked after, as a JSON list.  The release's own only where that was asked for: the
     code of a topology there could end the operator, or take its account through a pod. */}}
{{- define "reprise.namespaces" -}}
{{- if not .Values.watch.allowOwnNamespace -}}
{{- if has .Release.Namespace .Values.watch.namespaces -}}
{{- fail (printf "watch.namespaces: %s is the namespace of this release, where the code of topologies could take the operator's rights; use another one, or set watch.allowOwnNamespace=true" .Release.Namespace) -}}
{{- else if and (not .Values.watch.namespaces) (not .Values.watch.allNamespaces) -}}
{{- fail "watch.namespaces: name the namespaces with topologies (they must be there); or set watch.allowOwnNamespace=true to have them beside the operator, whose rights their code could take" -}}
{{- end -}}
{{- end -}}
{{- $own := ternary (list .Release.Namespace) (list) .Values.watch.allowOwnNamespace -}}
{{ toJson (uniq (default $own .Values.watch.namespaces)) }}
{{- end -}}

{{- define "reprise.zookeeperHosts" -}}
{{- if .Values.zookeeper.hosts -}}
{{- .Values.zookeeper.hosts -}}
{{- else if .Values.zookeeper.embedded.enabled -}}
{{- $name := include "reprise.zookeeper" . -}}
{{- $hosts := list -}}
{{- range $i := until (int .Values.zookeeper.embedded.replicas) -}}
{{- $hosts = append $hosts (printf "%s-%d.%s.%s.svc:%s" $name $i $name $.Release.Namespace (include "reprise.zookeeperPort" $)) -}}
{{- end -}}
{{- join "," $hosts -}}
{{- else -}}
{{- fail "zookeeper: give `hosts` or leave `embedded.enabled` true" -}}
{{- end -}}
{{- end -}}

{{- define "reprise.webSecret" -}}
{{- .Values.web.token.secret | default (printf "%s-web" (include "reprise.operator" .)) -}}
{{- end -}}

{{/* By which names a browser or a proxy may ask for the page's Service, as a JSON list */}}
{{- define "reprise.webNames" -}}
{{- $service := printf "%s-web" (include "reprise.operator" .) -}}
{{- $space := .Release.Namespace -}}
{{- $names := list $service (printf "%s.%s" $service $space) (printf "%s.%s.svc" $service $space) (printf "%s.%s.svc.cluster.local" $service $space) -}}
{{- if .Values.web.ingress.enabled }}{{- $names = append $names .Values.web.ingress.host }}{{- end -}}
{{ toJson $names }}
{{- end -}}

{{/* Below which address the runbooks are: where somebody says, else on the page, at its ingress or its Service */}}
{{- define "reprise.runbooks" -}}
{{- if .Values.metrics.prometheusRule.runbooks -}}
{{ .Values.metrics.prometheusRule.runbooks }}
{{- else if not .Values.web.enabled -}}
{{- fail "metrics.prometheusRule.runbooks: say where the pages of docs/runbooks are, as the page that serves them is off (web.enabled)" -}}
{{- else if .Values.web.ingress.enabled -}}
{{ ternary "https" "http" (ne .Values.web.ingress.tlsSecret "") }}://{{ .Values.web.ingress.host }}/runbooks
{{- else -}}
http://{{ include "reprise.operator" . }}-web.{{ .Release.Namespace }}.svc/runbooks
{{- end -}}
{{- end -}}

{{/* Of every pod of the chart, and of its containers; what is null in the values is left to the platform */}}
{{- define "reprise.podSecurity" -}}
{{ toYaml .Values.podSecurityContext }}
{{- end -}}

{{- define "reprise.containerSecurity" -}}
{{ toYaml .Values.securityContext }}
{{- end -}}

{{/* Access to ZooKeeper for a container: environment, mounts, volumes; topologies' pods get theirs from the operator */}}
{{- define "reprise.zookeeperEnv" -}}
{{- if .Values.zookeeper.tls.enabled }}
- {name: REPRISE_ZK_TLS, value: /etc/reprise-zookeeper/tls}
{{- end }}
{{- if .Values.zookeeper.auth.enabled }}
- {name: REPRISE_ZK_AUTH, value: /etc/reprise-zookeeper/auth}
{{- end }}
{{- end -}}

{{- define "reprise.zookeeperMounts" -}}
{{- if .Values.zookeeper.tls.enabled }}
- {name: zookeeper-tls, mountPath: /etc/reprise-zookeeper/tls, readOnly: true}
{{- end }}
{{- if .Values.zookeeper.auth.enabled }}
- {name: zookeeper-auth, mountPath: /etc/reprise-zookeeper/auth, readOnly: true}
{{- end }}
{{- end -}}

{{- define "reprise.zookeeperVolumes" -}}
{{- if .Values.zookeeper.tls.enabled }}
- {name: zookeeper-tls, secret: {secretName: {{ .Values.zookeeper.tls.secret }}, defaultMode: 0440}}
{{- end }}
{{- if .Values.zookeeper.auth.enabled }}
- {name: zookeeper-auth, secret: {secretName: {{ required "zookeeper.auth.secret" .Values.zookeeper.auth.secret }}, defaultMode: 0440}}
{{- end }}
{{- end -}}

{{/* Of the chart's own ZooKeeper, for clients */}}
{{- define "reprise.zookeeperPort" -}}
{{ ternary "2281" "2181" .Values.zookeeper.tls.enabled }}
{{- end -}}

{{/* Rules of the operator in a watched namespace; every verb is named, and none reads a Secret */}}
{{- define "reprise.operatorRules" -}}
# patch: the finalizer
- apiGroups: [reprise.dev]
  resources: [streamtopologies]
  verbs: [list, watch, patch]
- apiGroups: [reprise.dev]
  resources: [incidents]
  verbs: [get, create, delete]
# list: what an operator before has proposed
- apiGroups: [reprise.dev]
  resources: [recoveryplans]
  verbs: [get, list, create, delete]
- apiGroups: [reprise.dev]
  resources: [streamtopologies/status, incidents/status, recoveryplans/status]
  verbs: [patch]
# the driver's pod is made, and executors that are lost are ended
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
# a pod on a lost machine is marked Failed, or Spark would not replace it
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
# the topology and the executors' template, as the driver reads them
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, patch]
{{- if .Values.zookeeper.auth.enabled }}
# one for each topology, with its user in ZooKeeper; what is there can neither be read nor changed with this
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
{{- end }}
# one for each topology: what a chart's policy cannot say
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [list, create, patch]   # list: what an autoscaler says of pods that wait
{{- end -}}

{{/* Rules of a driver, as Spark's Kubernetes backend needs them; its executors go with its pod, which owns them */}}
{{- define "reprise.driverRules" -}}
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
{{- end -}}
