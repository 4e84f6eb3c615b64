// RUN: rhino-opt %s -p 'propagate{mesh=dp=2,tp=2}' --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'propagate{mesh="dp=2,tp=2"},spmd' --verify-equivalence | filecheck %s --check-prefix=LOCAL

// A Megatron MLP from two pins: the batch over dp, the hidden dimension (of the product of x and the first weight)
// over tp. The weights follow, the second product is partial, and its reduction is the only communication.
// CHECK: dist.mesh @mesh = <["dp"=2, "tp"=2]>
// CHECK-LABEL: func.func @main
// CHECK-SAME: %x: tensor<8x4xf64> {dist.layout = #dist.layout<[{"dp"}, {}]>}
// CHECK-SAME: %w1: tensor<4x16xf64> {rhino.name = "w1", dist.layout = #dist.layout<[{}, {"tp"}]>}
// CHECK-SAME: %w2: tensor<16x4xf64> {rhino.name = "w2", dist.layout = #dist.layout<[{"tp"}, {}]>}
// CHECK-SAME: -> (tensor<8x4xf64> {dist.layout = #dist.layout<[{"dp"}, {}]>}, tensor<4x16xf64> {rhino.alias = 1 : i64, dist.layout = #dist.layout<[{}, {"tp"}]>})
// CHECK-NEXT: %h = hlo.dot_general %x, %w1 {{.*}}[#dist.layout<[{"dp"}, {"tp"}]>]
// CHECK-NEXT: %z = hlo.constant dense<0.0> : tensor<8x16xf64> {dist.layout = [#dist.layout<[{"dp"}, {"tp"}]>]}
// CHECK-NEXT: %r = hlo.maximum %h, %z {{.*}}[#dist.layout<[{"dp"}, {"tp"}]>]
// CHECK-NEXT: %y = hlo.dot_general %r, %w2 {{.*}}[#dist.layout<[{"dp"}, {}] partial {"tp": sum}>]
// CHECK-NEXT: %w3 = hlo.add %w1, %w1 {dist.layout = [#dist.layout<[{}, {"tp"}]>]}
// CHECK-NEXT: %y_1 = dist.reshard %y to #dist.layout<[{"dp"}, {}]>
// CHECK-NEXT: func.return %y_1, %w3

// LOCAL-NOT: dist.all_gather
// LOCAL: %h = hlo.dot_general %x, %w1 {{.*}} : (tensor<4x4xf64>, tensor<4x8xf64>) -> tensor<4x8xf64>
// LOCAL: dist.all_reduce sum %y over ["tp"] {reason = "reshard [{dp}, {}] partial {tp: sum} -> [{dp}, {}] for result 0", bytes = 128 : i64} : tensor<4x4xf64>
// LOCAL-NOT: dist.
// LOCAL: func.return
func.func @main(%x: tensor<8x4xf64> {dist.layout = #dist.layout<[{"dp"}, {}]>}, %w1: tensor<4x16xf64> {rhino.name = "w1"}, %w2: tensor<16x4xf64> {rhino.name = "w2"})
    -> (tensor<8x4xf64>, tensor<4x16xf64> {rhino.alias = 1}) {
  %h = hlo.dot_general %x, %w1 batch [] x [] contract [1] x [0] {dist.layout = [#dist.layout<[{"dp"}, {"tp"}]>]} : (tensor<8x4xf64>, tensor<4x16xf64>) -> tensor<8x16xf64>
  %z = hlo.constant dense<0.0> : tensor<8x16xf64>
  %r = hlo.maximum %h, %z : tensor<8x16xf64>
  %y = hlo.dot_general %r, %w2 batch [] x [] contract [1] x [0] : (tensor<8x16xf64>, tensor<16x4xf64>) -> tensor<8x4xf64>
  %w3 = hlo.add %w1, %w1 : tensor<4x16xf64>
  func.return %y, %w3 : tensor<8x4xf64>, tensor<4x16xf64>
}
