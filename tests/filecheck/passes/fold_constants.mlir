// RUN: rhino-opt %s -p fold-constants,dce --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'fold-constants{limit=2},dce' | filecheck %s --check-prefix=SMALL

// CHECK-LABEL: func.func @main
// CHECK-DAG: dense<[1.0, 4.0, 9.0]> : tensor<3xf32>
// CHECK-DAG: dense<6.0> : tensor<1000x1000xf32>
// CHECK-NOT: hlo.mul
// SMALL: hlo.mul
// SMALL-NOT: hlo.broadcast_in_dim
func.func @main() -> (tensor<3xf32>, tensor<1000x1000xf32>) {
  %a = hlo.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  %b = hlo.mul %a, %a : tensor<3xf32>
  %c = hlo.constant dense<3.0> : tensor<f32>
  %d = hlo.broadcast_in_dim %c dims [] : tensor<f32> -> tensor<1000x1000xf32>
  %e = hlo.add %d, %d : tensor<1000x1000xf32>
  func.return %b, %e : tensor<3xf32>, tensor<1000x1000xf32>
}
