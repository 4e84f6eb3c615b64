// RUN: rhino-opt %s -p canonicalize --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p canonicalize | rhino-opt -p canonicalize | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NOT: hlo.convert
// CHECK: hlo.transpose %x perm [2, 0, 1] : tensor<2x3x4xbf16> -> tensor<4x2x3xbf16>
// CHECK-NOT: hlo.mul
// CHECK: func.return
func.func @main(%x: tensor<2x3x4xbf16>) -> tensor<4x2x3xbf16> {
  %one = hlo.constant dense<1.0> : tensor<2x3x4xf32>
  %0 = hlo.convert %x to f32 : tensor<2x3x4xbf16> -> tensor<2x3x4xf32>
  %1 = hlo.mul %0, %one : tensor<2x3x4xf32>
  %2 = hlo.convert %1 to bf16 : tensor<2x3x4xf32> -> tensor<2x3x4xbf16>
  %3 = hlo.transpose %2 perm [1, 0, 2] : tensor<2x3x4xbf16> -> tensor<3x2x4xbf16>
  %4 = hlo.transpose %3 perm [2, 1, 0] : tensor<3x2x4xbf16> -> tensor<4x2x3xbf16>
  func.return %4 : tensor<4x2x3xbf16>
}
