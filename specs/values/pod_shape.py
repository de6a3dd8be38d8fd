"""Parts of a pod as users write them: checked against the fields of Kubernetes 1.37, by type, and
laid over the pod that is made.

A word is `NAME:TYPE`, with `!` behind what must be there; `[T]` is a list, `{T}` a mapping from
texts.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

POD = "PodSpec"
CONTAINER = "Container"
TEMPLATE = "PodTemplateSpec"
DIRECTIVE = "$patch"  # of an entry of a list: `delete` takes it out, `replace` drops the others
# The fields that identify an entry of a list. All other lists are replaced whole.
MERGE_KEYS = {
    "Container": "name",
    "EphemeralContainer": "name",
    "Volume": "name",
    "EnvVar": "name",
    "ContainerPort": "containerPort",
    "VolumeMount": "mountPath",
    "VolumeDevice": "devicePath",
    "LocalObjectReference": "name",
    "HostAlias": "ip",
    "TopologySpreadConstraint": "topologyKey",
    "PodResourceClaim": "name",
    "PodSchedulingGate": "name",
}
_SORTS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "number": (int, float),
    "flag": (bool,),
    "amount": (str, int, float),
}
_CALLED = {
    "text": "a text",
    "number": "a number",
    "flag": "true or false",
    "amount": "a number, or a text such as `500m` or `1Gi`",
}

FIELDS = {
    "AWSElasticBlockStoreVolumeSource": "fsType:text partition:number readOnly:flag volumeID:text!",
    "Affinity": "nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity",
    "AppArmorProfile": "localhostProfile:text type:text!",
    "AzureDiskVolumeSource": (
        "cachingMode:text diskName:text! diskURI:text! fsType:text kind:text readOnly:flag"
    ),
    "AzureFileVolumeSource": "readOnly:flag secretName:text! shareName:text!",
    "CSIVolumeSource": (
        "driver:text! fsType:text nodePublishSecretRef:LocalObjectReference readOnly:flag "
        "volumeAttributes:{text}"
    ),
    "Capabilities": "add:[text] drop:[text]",
    "CephFSVolumeSource": (
        "monitors:[text]! path:text readOnly:flag secretFile:text secretRef:LocalObjectReference "
        "user:text"
    ),
    "CinderVolumeSource": "fsType:text readOnly:flag secretRef:LocalObjectReference volumeID:text!",
    "ClusterTrustBundleProjection": (
        "labelSelector:LabelSelector name:text optional:flag path:text! signerName:text user:number"
    ),
    "ConfigMapEnvSource": "name:text optional:flag",
    "ConfigMapKeySelector": "key:text! name:text optional:flag",
    "ConfigMapProjection": "items:[KeyToPath] name:text optional:flag",
    "ConfigMapVolumeSource": (
        "defaultMode:number defaultUser:number items:[KeyToPath] name:text optional:flag"
    ),
    "Container": (
        "args:[text] command:[text] env:[EnvVar] envFrom:[EnvFromSource] image:text "
        "imagePullPolicy:text lifecycle:Lifecycle livenessProbe:Probe name:text! "
        "ports:[ContainerPort] readinessProbe:Probe resizePolicy:[ContainerResizePolicy] "
        "resources:ResourceRequirements restartPolicy:text "
        "restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext "
        "startupProbe:Probe stdin:flag stdinOnce:flag terminationMessagePath:text "
        "terminationMessagePolicy:text tty:flag volumeDevices:[VolumeDevice] "
        "volumeMounts:[VolumeMount] workingDir:text"
    ),
    "ContainerPort": "containerPort:number! hostIP:text hostPort:number name:text protocol:text",
    "ContainerResizePolicy": "resourceName:text! restartPolicy:text!",
    "ContainerRestartRule": "action:text! exitCodes:ContainerRestartRuleOnExitCodes",
    "ContainerRestartRuleOnExitCodes": "operator:text! values:[number]",
    "CoreV1ResourceClaim": "name:text! request:text",
    "DownwardAPIProjection": "items:[DownwardAPIVolumeFile]",
    "DownwardAPIVolumeFile": (
        "fieldRef:ObjectFieldSelector mode:number path:text! "
        "resourceFieldRef:ResourceFieldSelector user:number"
    ),
    "DownwardAPIVolumeSource": (
        "defaultMode:number defaultUser:number items:[DownwardAPIVolumeFile]"
    ),
    "EmptyDirVolumeSource": "medium:text mode:number sizeLimit:amount",
    "EnvFromSource": "configMapRef:ConfigMapEnvSource prefix:text secretRef:SecretEnvSource",
    "EnvVar": "name:text! value:text valueFrom:EnvVarSource",
    "EnvVarSource": (
        "configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector "
        "fileKeyRef:FileKeySelector resourceFieldRef:ResourceFieldSelector "
        "secretKeyRef:SecretKeySelector"
    ),
    "EphemeralContainer": (
        "args:[text] command:[text] env:[EnvVar] envFrom:[EnvFromSource] image:text "
        "imagePullPolicy:text lifecycle:Lifecycle livenessProbe:Probe name:text! "
        "ports:[ContainerPort] readinessProbe:Probe resizePolicy:[ContainerResizePolicy] "
        "resources:ResourceRequirements restartPolicy:text "
        "restartPolicyRules:[ContainerRestartRule] securityContext:SecurityContext "
        "startupProbe:Probe stdin:flag stdinOnce:flag targetContainerName:text "
        "terminationMessagePath:text terminationMessagePolicy:text tty:flag "
        "volumeDevices:[VolumeDevice] volumeMounts:[VolumeMount] workingDir:text"
    ),
    "EphemeralVolumeSource": "volumeClaimTemplate:PersistentVolumeClaimTemplate",
    "EvictionResponder": "name:text! priority:number!",
    "ExecAction": "command:[text]",
    "FCVolumeSource": "fsType:text lun:number readOnly:flag targetWWNs:[text] wwids:[text]",
    "FileKeySelector": "key:text! optional:flag path:text! volumeName:text!",
    "FlexVolumeSource": (
        "driver:text! fsType:text options:{text} readOnly:flag secretRef:LocalObjectReference"
    ),
    "FlockerVolumeSource": "datasetName:text datasetUUID:text",
    "GCEPersistentDiskVolumeSource": "fsType:text partition:number pdName:text! readOnly:flag",
    "GRPCAction": "mode:text port:number! service:text",
    "GitRepoVolumeSource": "directory:text repository:text! revision:text",
    "GlusterfsVolumeSource": "endpoints:text! path:text! readOnly:flag",
    "HTTPGetAction": (
        "host:text httpHeaders:[HTTPHeader] path:text port:amount! protocol:text scheme:text"
    ),
    "HTTPHeader": "name:text! value:text!",
    "HostAlias": "hostnames:[text] ip:text!",
    "HostPathVolumeSource": "path:text! type:text",
    "ISCSIVolumeSource": (
        "chapAuthDiscovery:flag chapAuthSession:flag fsType:text initiatorName:text iqn:text! "
        "iscsiInterface:text lun:number! portals:[text] readOnly:flag "
        "secretRef:LocalObjectReference targetPortal:text!"
    ),
    "ImageVolumeSource": "pullPolicy:text reference:text",
    "KeyToPath": "key:text! mode:number path:text! user:number",
    "LabelSelector": "matchExpressions:[LabelSelectorRequirement] matchLabels:{text}",
    "LabelSelectorRequirement": "key:text! operator:text! values:[text]",
    "Lifecycle": "postStart:LifecycleHandler preStop:LifecycleHandler stopSignal:text",
    "LifecycleHandler": (
        "exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction"
    ),
    "LocalObjectReference": "name:text",
    "ManagedFieldsEntry": (
        "apiVersion:text fieldsType:text fieldsV1:{any} manager:text operation:text "
        "subresource:text time:text"
    ),
    "NFSVolumeSource": "path:text! readOnly:flag server:text!",
    "NodeAffinity": (
        "preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm] "
        "requiredDuringSchedulingIgnoredDuringExecution:NodeSelector"
    ),
    "NodeSelector": "nodeSelectorTerms:[NodeSelectorTerm]!",
    "NodeSelectorRequirement": "key:text! operator:text! values:[text]",
    "NodeSelectorTerm": (
        "matchExpressions:[NodeSelectorRequirement] matchFields:[NodeSelectorRequirement]"
    ),
    "ObjectFieldSelector": "apiVersion:text fieldPath:text!",
    "ObjectMeta": (
        "annotations:{text} creationTimestamp:text deletionGracePeriodSeconds:number "
        "deletionTimestamp:text finalizers:[text] generateName:text generation:number "
        "labels:{text} managedFields:[ManagedFieldsEntry] name:text namespace:text "
        "ownerReferences:[OwnerReference] resourceVersion:text selfLink:text uid:text"
    ),
    "OwnerReference": (
        "apiVersion:text! blockOwnerDeletion:flag controller:flag kind:text! name:text! uid:text!"
    ),
    "PersistentVolumeClaimSpec": (
        "accessModes:[text] dataSource:TypedLocalObjectReference "
        "dataSourceRef:TypedObjectReference resources:VolumeResourceRequirements "
        "selector:LabelSelector storageClassName:text volumeAttributesClassName:text "
        "volumeMode:text volumeName:text"
    ),
    "PersistentVolumeClaimTemplate": "metadata:ObjectMeta spec:PersistentVolumeClaimSpec!",
    "PersistentVolumeClaimVolumeSource": "claimName:text! readOnly:flag",
    "PhotonPersistentDiskVolumeSource": "fsType:text pdID:text!",
    "PodAffinity": (
        "preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm] "
        "requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]"
    ),
    "PodAffinityTerm": (
        "labelSelector:LabelSelector matchLabelKeys:[text] mismatchLabelKeys:[text] "
        "namespaceSelector:LabelSelector namespaces:[text] topologyKey:text!"
    ),
    "PodAntiAffinity": (
        "preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm] "
        "requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]"
    ),
    "PodCertificateProjection": (
        "certificateChainPath:text credentialBundlePath:text keyPath:text keyType:text! "
        "maxExpirationSeconds:number signerName:text! user:number userAnnotations:{text}"
    ),
    "PodDNSConfig": "nameservers:[text] options:[PodDNSConfigOption] searches:[text]",
    "PodDNSConfigOption": "name:text value:text",
    "PodOS": "name:text!",
    "PodReadinessGate": "conditionType:text!",
    "PodResourceClaim": "name:text! resourceClaimName:text resourceClaimTemplateName:text",
    "PodSchedulingGate": "name:text!",
    "PodSchedulingGroup": "podGroupName:text",
    "PodSecurityContext": (
        "appArmorProfile:AppArmorProfile fsGroup:number fsGroupChangePolicy:text "
        "runAsGroup:number runAsNonRoot:flag runAsUser:number seLinuxChangePolicy:text "
        "seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups:[number] "
        "supplementalGroupsPolicy:text sysctls:[Sysctl] "
        "windowsOptions:WindowsSecurityContextOptions"
    ),
    "PodSpec": (
        "activeDeadlineSeconds:number affinity:Affinity automountServiceAccountToken:flag "
        "containers:[Container]! dnsConfig:PodDNSConfig dnsPolicy:text enableServiceLinks:flag "
        "ephemeralContainers:[EphemeralContainer] evictionResponders:[EvictionResponder] "
        "hostAliases:[HostAlias] hostIPC:flag hostNetwork:flag hostPID:flag hostUsers:flag "
        "hostname:text hostnameOverride:text imagePullSecrets:[LocalObjectReference] "
        "initContainers:[Container] nodeName:text nodeSelector:{text} os:PodOS overhead:{text} "
        "preemptionPolicy:text priority:number priorityClassName:text "
        "readinessGates:[PodReadinessGate] resourceClaims:[PodResourceClaim] "
        "resources:ResourceRequirements restartPolicy:text runtimeClassName:text "
        "schedulerName:text schedulingGates:[PodSchedulingGate] "
        "schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext "
        "serviceAccount:text serviceAccountName:text setHostnameAsFQDN:flag "
        "shareProcessNamespace:flag subdomain:text terminationGracePeriodSeconds:number "
        "tolerations:[Toleration] topologySpreadConstraints:[TopologySpreadConstraint] "
        "volumes:[Volume]"
    ),
    "PodTemplateSpec": "metadata:ObjectMeta spec:PodSpec",
    "PortworxVolumeSource": "fsType:text readOnly:flag volumeID:text!",
    "PreferredSchedulingTerm": "preference:NodeSelectorTerm! weight:number!",
    "Probe": (
        "exec:ExecAction failureThreshold:number grpc:GRPCAction httpGet:HTTPGetAction "
        "initialDelaySeconds:number periodSeconds:number successThreshold:number "
        "tcpSocket:TCPSocketAction terminationGracePeriodSeconds:number timeoutSeconds:number"
    ),
    "ProjectedVolumeSource": "defaultMode:number defaultUser:number sources:[VolumeProjection]",
    "QuobyteVolumeSource": (
        "group:text readOnly:flag registry:text! tenant:text user:text volume:text!"
    ),
    "RBDVolumeSource": (
        "fsType:text image:text! keyring:text monitors:[text]! pool:text readOnly:flag "
        "secretRef:LocalObjectReference user:text"
    ),
    "ResourceFieldSelector": "containerName:text divisor:amount resource:text!",
    "ResourceRequirements": "claims:[CoreV1ResourceClaim] limits:{amount} requests:{amount}",
    "SELinuxOptions": "level:text role:text type:text user:text",
    "ScaleIOVolumeSource": (
        "fsType:text gateway:text! protectionDomain:text readOnly:flag "
        "secretRef:LocalObjectReference! sslEnabled:flag storageMode:text storagePool:text "
        "system:text! volumeName:text"
    ),
    "SeccompProfile": "localhostProfile:text type:text!",
    "SecretEnvSource": "name:text optional:flag",
    "SecretKeySelector": "key:text! name:text optional:flag",
    "SecretProjection": "items:[KeyToPath] name:text optional:flag",
    "SecretVolumeSource": (
        "defaultMode:number defaultUser:number items:[KeyToPath] optional:flag secretName:text"
    ),
    "SecurityContext": (
        "allowPrivilegeEscalation:flag appArmorProfile:AppArmorProfile capabilities:Capabilities "
        "privileged:flag procMount:text readOnlyRootFilesystem:flag runAsGroup:number "
        "runAsNonRoot:flag runAsUser:number seLinuxOptions:SELinuxOptions "
        "seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions"
    ),
    "ServiceAccountTokenProjection": (
        "audience:text expirationSeconds:number path:text! user:number"
    ),
    "SleepAction": "seconds:number!",
    "StorageOSVolumeSource": (
        "fsType:text readOnly:flag secretRef:LocalObjectReference volumeName:text "
        "volumeNamespace:text"
    ),
    "Sysctl": "name:text! value:text!",
    "TCPSocketAction": "host:text port:amount!",
    "Toleration": "effect:text key:text operator:text tolerationSeconds:number value:text",
    "TopologySpreadConstraint": (
        "labelSelector:LabelSelector matchLabelKeys:[text] maxSkew:number! minDomains:number "
        "nodeAffinityPolicy:text nodeTaintsPolicy:text topologyKey:text! whenUnsatisfiable:text!"
    ),
    "TypedLocalObjectReference": "apiGroup:text kind:text! name:text!",
    "TypedObjectReference": "apiGroup:text kind:text! name:text! namespace:text",
    "Volume": (
        "awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource "
        "azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource "
        "configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource "
        "emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:FCVolumeSource "
        "flexVolume:FlexVolumeSource flocker:FlockerVolumeSource "
        "gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource "
        "glusterfs:GlusterfsVolumeSource hostPath:HostPathVolumeSource image:ImageVolumeSource "
        "iscsi:ISCSIVolumeSource name:text! nfs:NFSVolumeSource "
        "persistentVolumeClaim:PersistentVolumeClaimVolumeSource "
        "photonPersistentDisk:PhotonPersistentDiskVolumeSource "
        "portworxVolume:PortworxVolumeSource projected:ProjectedVolumeSource "
        "quobyte:QuobyteVolumeSource rbd:RBDVolumeSource scaleIO:ScaleIOVolumeSource "
        "secret:SecretVolumeSource storageos:StorageOSVolumeSource "
        "vsphereVolume:VsphereVirtualDiskVolumeSource"
    ),
    "VolumeDevice": "devicePath:text! name:text!",
    "VolumeMount": (
        "bindMountOptions:[text] mountPath:text! mountPropagation:text name:text! readOnly:flag "
        "recursiveReadOnly:text subPath:text subPathExpr:text"
    ),
    "VolumeProjection": (
        "clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection "
        "downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection "
        "secret:SecretProjection serviceAccountToken:ServiceAccountTokenProjection"
    ),
    "VolumeResourceRequirements": "limits:{amount} requests:{amount}",
    "VsphereVirtualDiskVolumeSource": (
        "fsType:text storagePolicyID:text storagePolicyName:text volumePath:text!"
    ),
    "WeightedPodAffinityTerm": "podAffinityTerm:PodAffinityTerm! weight:number!",
    "WindowsSecurityContextOptions": (
        "gmsaCredentialSpec:text gmsaCredentialSpecName:text hostProcess:flag runAsUserName:text"
    ),
}


def check_shape(
    value: Any,
    sort: str,
    *,
    whole: bool = True,
) -> Any:
    """Returns the value, if it is a `sort` of Kubernetes, or a list of this sort in brackets.
    whole: required fields must be there; in a patch they may be absent. Raises ValueError with the
    path and the fault.
    """
    for problem in find_shape_problems(value, sort, "", whole=whole):
        raise ValueError(problem)
    return value


def find_shape_problems(
    value: Any,
    sort: str,
    at: str,
    *,
    whole: bool,
) -> Iterator[str]:
    if sort.startswith("["):
        if not isinstance(value, list | tuple):
            yield f"{_format_at(at)}must be a list"
            return
        for number, one in enumerate(value):
            yield from find_shape_problems(one, sort[1:-1], f"{at}[{number}]", whole=whole)
    elif sort.startswith("{"):
        if not isinstance(value, Mapping):
            yield f"{_format_at(at)}must be a mapping"
            return
        for name, one in value.items():
            yield from find_shape_problems(one, sort[1:-1], f"{at}.{name}", whole=whole)
    elif sort in FIELDS:
        yield from _of_object(value, sort, at, whole=whole)
    elif sort in _SORTS:
        right = isinstance(value, _SORTS[sort])
        if not right or (isinstance(value, bool) and sort != "flag"):
            yield f"{_format_at(at)}is `{value}`; it must be {_CALLED[sort]}"


def _of_object(
    value: Any,
    sort: str,
    at: str,
    *,
    whole: bool,
) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{_format_at(at)}must be a mapping: a {sort} of Kubernetes"
        return
    fields = fields_of(sort)
    for name, one in value.items():
        if name == DIRECTIVE and not whole:
            continue
        if name not in fields:
            near = difflib.get_close_matches(str(name), fields, n=1)
            meant = f"; did you mean `{near[0]}`?" if near else ""
            yield f"{_format_at(f'{at}.{name}')}is no field of a {sort} of Kubernetes{meant}"
        elif one is not None:
            yield from find_shape_problems(
                one, fields[name].rstrip("!"), f"{at}.{name}", whole=whole
            )
        elif whole:
            yield f"{_format_at(f'{at}.{name}')}is empty"
    if whole:
        for name, word in fields.items():
            if word.endswith("!") and name not in value:
                yield f"{_format_at(at)}has no `{name}`"


def _format_at(at: str) -> str:
    if at.lstrip("."):
        return f"`{at.lstrip('.')}` "
    return ""


@cache
def fields_of(sort: str) -> dict[str, str]:
    """Returns types by the names of fields, with `!` behind a required field."""
    return dict(word.split(":", 1) for word in FIELDS[sort].split())


def patch_shape(
    value: Any,
    patch: Any,
    sort: str,
) -> Any:
    """Returns a value with `patch` applied by the rules of Kubernetes' strategic merge."""
    if sort.startswith("["):
        return _patch_list(value or [], patch, sort[1:-1])
    if not isinstance(patch, Mapping):
        return patch
    if patch.get(DIRECTIVE) == "replace":
        return {name: one for name, one in patch.items() if name != DIRECTIVE}
    found = dict(value) if isinstance(value, Mapping) else {}
    fields = fields_of(sort) if sort in FIELDS else {}
    for name, one in patch.items():
        if one is None:
            found.pop(name, None)
        else:
            found[name] = patch_shape(found.get(name), one, fields.get(name, "any").rstrip("!"))
    return found


def _patch_list(
    value: list[Any],
    patch: list[Any],
    sort: str,
) -> list[Any]:
    key = MERGE_KEYS.get(sort)
    if key is None or any(_read_directive(it) == "replace" for it in patch):
        return [it for it in patch if _read_directive(it) is None]
    found = {it[key]: it for it in value}
    for one in patch:
        if _read_directive(one) == "delete":
            found.pop(one.get(key), None)
        else:
            found[one.get(key)] = patch_shape(found.get(one.get(key)), one, sort)
    return list(found.values())


def _read_directive(entry: Any) -> Any:
    if isinstance(entry, Mapping):
        return entry.get(DIRECTIVE)
    return None
