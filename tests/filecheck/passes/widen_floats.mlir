// RUN: rhino-opt %s -p widen-floats --verify-equivalence | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<4xf64>
// CHECK-NEXT: hlo.constant dense<[0.10000000149011612, 0x7FF0000000000000, 1.0, 2.0]> : tensor<4xf64>
// CHECK-NEXT: hlo.convert %x to f64 : tensor<4xf64> -> tensor<4xf64>
// CHECK-NOT: f32
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = hlo.constant dense<[0.1, 0x7F800000, 1.0, 2.0]> : tensor<4xf32>
  %0 = hlo.convert %x to bf16 : tensor<4xf32> -> tensor<4xbf16>
  %1 = hlo.convert %0 to f32 : tensor<4xbf16> -> tensor<4xf32>
  %2 = hlo.maximum %1, %c : tensor<4xf32>
  func.return %2 : tensor<4xf32>
}
