// RUN: rhino-opt %s -p inline-composites --verify-equivalence | filecheck %s
// RUN: rhino-opt %s | filecheck %s --check-prefix=ROUND

// ROUND: hlo.composite "softmax"(%x) {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
// CHECK-LABEL: func.func @main
// CHECK-NOT: hlo.composite
// CHECK: %[[M:.*]] = hlo.reduce "max" %x {{.*}}rhino.composite = "softmax#0"
// CHECK: hlo.div {{.*}} {rhino.composite = "softmax#0"} : tensor<4xf32>
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = hlo.composite "softmax"(%x) {axis = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %m = hlo.reduce "max" %a dims [0] : tensor<4xf32> -> tensor<f32>
    %b = hlo.broadcast_in_dim %m dims [] : tensor<f32> -> tensor<4xf32>
    %s = hlo.sub %a, %b : tensor<4xf32>
    %e = hlo.exp %s : tensor<4xf32>
    %t = hlo.reduce "sum" %e dims [0] : tensor<4xf32> -> tensor<f32>
    %u = hlo.broadcast_in_dim %t dims [] : tensor<f32> -> tensor<4xf32>
    %r = hlo.div %e, %u : tensor<4xf32>
    hlo.yield %r : tensor<4xf32>
  }
  func.return %0 : tensor<4xf32>
}
