// RUN: rhino-opt %s -p cse,dce --verify-equivalence | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[E:.*]] = hlo.exp %x
// CHECK-NEXT: %[[S:.*]] = hlo.add %[[E]], %[[E]]
// CHECK-NEXT: func.return %[[S]]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %a = hlo.exp %x : tensor<4xf32>
  %dead = hlo.log %a : tensor<4xf32>
  %b = hlo.exp %x : tensor<4xf32>
  %c = hlo.add %a, %b : tensor<4xf32>
  func.return %c : tensor<4xf32>
}
