// RUN: rhino-opt %s -p place --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'place{mesh=dp=2,tp=4}' | filecheck %s
// RUN: not rhino-opt %s -p 'place{mesh=dp=4,tp=2}' 2>&1 | filecheck %s --check-prefix=CLASH

// CLASH: the module is written for mesh dp=2,tp=4, not for dp=4,tp=2
dist.mesh @mesh = <["dp"=2, "tp"=4]>

// Layouts follow from the operands, in program order. The second dot and the third want %w split along the
// contracted dimension: they share one reshard, which stands right before the first of them. Their results are
// partial and stay so through the addition; then one reduce-scatter does for both.
// CHECK-LABEL: func.func @main
// CHECK-SAME: -> (tensor<8x8xf64> {dist.layout = #dist.layout<[{"dp"}, {}]>})
// CHECK-NEXT: %[[A:.*]] = hlo.dot_general %x, %w {{.*}} {dist.layout = [#dist.layout<[{"dp"}, {"tp"}]>]}
// CHECK-NEXT: %[[W:.*]] = dist.reshard %w to #dist.layout<[{"tp"}, {}]>
// CHECK-NEXT: %[[B:.*]] = hlo.dot_general %w2, %[[W]] {{.*}} {dist.layout = [#dist.layout<[{"dp"}, {}] partial {"tp": sum}>]}
// CHECK-NEXT: %[[C:.*]] = hlo.dot_general %w2, %[[W]] {{.*}} {dist.layout = [#dist.layout<[{"dp"}, {}] partial {"tp": sum}>]}
// CHECK-NEXT: %[[S:.*]] = hlo.add %[[B]], %[[C]] {dist.layout = [#dist.layout<[{"dp"}, {}] partial {"tp": sum}>]}
// CHECK-NEXT: %[[R:.*]] = dist.reshard %[[S]] to #dist.layout<[{"dp"}, {"tp"}]>
// CHECK-NEXT: %[[D:.*]] = hlo.sub %[[A]], %[[R]] {dist.layout = [#dist.layout<[{"dp"}, {"tp"}]>]}
// CHECK-NEXT: %[[E:.*]] = dist.reshard %[[D]] to #dist.layout<[{"dp"}, {}]>
// CHECK-NEXT: func.return %[[E]]
func.func @main(%x: tensor<8x8xf64> {dist.layout = #dist.layout<[{"dp"}, {}]>},
                %w: tensor<8x8xf64> {dist.layout = #dist.layout<[{}, {"tp"}]>},
                %w2: tensor<8x8xf64> {dist.layout = #dist.layout<[{"dp"}, {"tp"}]>})
    -> (tensor<8x8xf64> {dist.layout = #dist.layout<[{"dp"}, {}]>}) {
  %a = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<8x8xf64>, tensor<8x8xf64>) -> tensor<8x8xf64>
  %b = hlo.dot_general %w2, %w batch [] x [] contract [1] x [0] : (tensor<8x8xf64>, tensor<8x8xf64>) -> tensor<8x8xf64>
  %c = hlo.dot_general %w2, %w batch [] x [] contract [1] x [0] : (tensor<8x8xf64>, tensor<8x8xf64>) -> tensor<8x8xf64>
  %s = hlo.add %b, %c : tensor<8x8xf64>
  %d = hlo.sub %a, %s : tensor<8x8xf64>
  func.return %d : tensor<8x8xf64>
}
