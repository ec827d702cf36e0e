//! MetalLB's namespace and some of its kinds, as far as the tests use them. MetalLB has said `format: int32` of AS numbers;
//! with a maximum beyond it, an API server of Kubernetes 1.36 refuses each object.

/// The namespace and the CRDs. The test creates the objects.
pub const METALLB: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: metallb-system}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ipaddresspools.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: IPAddressPool, listKind: IPAddressPoolList, plural: ipaddresspools, singular: ipaddresspool}
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [addresses]
              properties:
                addresses: {type: array, items: {type: string}}
                autoAssign: {type: boolean, default: true}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bgpadvertisements.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: BGPAdvertisement, listKind: BGPAdvertisementList, plural: bgpadvertisements, singular: bgpadvertisement}
  versions:
    - name: v1beta1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              properties:
                ipAddressPools: {type: array, items: {type: string}}
                peers: {type: array, items: {type: string}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: bgppeers.metallb.io}
spec:
  group: metallb.io
  scope: Namespaced
  names: {kind: BGPPeer, listKind: BGPPeerList, plural: bgppeers, singular: bgppeer}
  versions:
    - name: v1beta2
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [myASN]
              properties:
                myASN: {type: integer, format: int64, minimum: 0, maximum: 4294967295}
                peerASN: {type: integer, format: int64, minimum: 0, maximum: 4294967295}
                peerAddress: {type: string}
                peerPort: {type: integer, default: 179, minimum: 1, maximum: 16384}
                ebgpMultiHop: {type: boolean}
                password: {type: string}
";
