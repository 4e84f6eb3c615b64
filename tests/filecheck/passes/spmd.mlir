// RUN: rhino-opt %s -p spmd --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p spmd | rhino-opt | filecheck %s

// CHECK: dist.mesh @mesh = <["dp"=2, "tp"=2]>
dist.mesh @mesh = <["dp"=2, "tp"=2]>

// Every op gets local shapes, and emits what it takes to be right there; a reshard becomes its steps, which say why
// they are there and how many bytes each rank sends. Arguments and results keep layouts, global types and roles.
// CHECK-LABEL: func.func @main
// CHECK-SAME: %x: tensor<4x6xf64> {rhino.name = "x", dist.layout = #dist.layout<[{"dp"}, {}]>, dist.global_type = tensor<8x6xf64>}
// CHECK-SAME: -> (tensor<4x3xf64> {rhino.name = "y", dist.layout = #dist.layout<[{"dp"}, {"tp"}]>, dist.global_type = tensor<8x6xf64>}, tensor<2x6xi64> {dist.layout = #dist.layout<[{"dp", "tp"}, {}]>, dist.global_type = tensor<8x6xi64>})
func.func @main(%x: tensor<8x6xf64> {rhino.name = "x", dist.layout = #dist.layout<[{"dp"}, {}]>})
    -> (tensor<8x6xf64> {rhino.name = "y", dist.layout = #dist.layout<[{"dp"}, {"tp"}]>}, tensor<8x6xi64> {dist.layout = #dist.layout<[{"dp", "tp"}, {}]>}) {
  // CHECK-NEXT: %r = hlo.reshape %x {rhino.composite = "c#0"} : tensor<4x6xf64> -> tensor<4x2x3xf64>
  %r = hlo.reshape %x {rhino.composite = "c#0", dist.layout = [#dist.layout<[{"dp"}, {}, {}]>]} : tensor<8x6xf64> -> tensor<8x2x3xf64>
  // CHECK-NEXT: %r_1 = dist.all_to_all %r cut 1 join 0 over ["dp"] {reason = "reshard [{dp}, {}, {}] -> [{}, {dp}, {}] for hlo.reduce at {{.*}}:{{[0-9]+}}:{{[0-9]+}}", bytes = 96 : i64} : tensor<4x2x3xf64> -> tensor<8x1x3xf64>
  %r_1 = dist.reshard %r to #dist.layout<[{}, {"dp"}, {}]> : tensor<8x2x3xf64>
  // CHECK-NEXT: %s = hlo.reduce "sum" %r_1 dims [1] : tensor<8x1x3xf64> -> tensor<8x3xf64>
  %s = hlo.reduce "sum" %r_1 dims [1] {dist.layout = [#dist.layout<[{}, {}] partial {"dp": sum}>]} : tensor<8x2x3xf64> -> tensor<8x3xf64>
  // CHECK-NEXT: %s_1 = dist.reduce_scatter sum %s dim 0 over ["dp"] {reason = "reshard [{}, {}] partial {dp: sum} -> [{dp}, {}] for hlo.broadcast_in_dim{{.*}}", bytes = 96 : i64} : tensor<8x3xf64> -> tensor<4x3xf64>
  %s_1 = dist.reshard %s to #dist.layout<[{"dp"}, {}]> : tensor<8x3xf64>
  // CHECK-NEXT: %b = hlo.broadcast_in_dim %s_1 dims [0, 2] : tensor<4x3xf64> -> tensor<4x1x3xf64>
  %b = hlo.broadcast_in_dim %s_1 dims [0, 2] {dist.layout = [#dist.layout<[{"dp"}, {"tp"}, {}]>]} : tensor<8x3xf64> -> tensor<8x2x3xf64>
  // CHECK-NEXT: %c = hlo.reshape %b : tensor<4x1x3xf64> -> tensor<4x3xf64>
  %c = hlo.reshape %b {dist.layout = [#dist.layout<[{"dp"}, {"tp"}]>]} : tensor<8x2x3xf64> -> tensor<8x6xf64>
  // CHECK-NEXT: %[[L:.*]] = hlo.iota 0 : tensor<2x6xi64>
  // CHECK-NEXT: %[[I:.*]] = dist.axis_index ["dp", "tp"] : tensor<i64>
  %i = hlo.iota 0 {dist.layout = [#dist.layout<[{"dp", "tp"}, {}]>]} : tensor<8x6xi64>
  // CHECK: func.return %c, %i : tensor<4x3xf64>, tensor<2x6xi64>
  func.return %c, %i : tensor<8x6xf64>, tensor<8x6xi64>
}
