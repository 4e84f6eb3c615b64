// RUN: rhino-opt %s -p spmd --split-input-file --verify-diagnostics

// expected-error @below {{the module has no mesh}}
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  func.return %x : tensor<4xf64>
}

// -----
dist.mesh @mesh = <["a"=2]>
// expected-error @below {{argument 0 of @main has no dist.layout}}
func.func @main(%x: tensor<4xf64>) -> tensor<4xf64> {
  func.return %x : tensor<4xf64>
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf64> {dist.layout = #dist.layout<[{"a"}]>}) -> tensor<4xf64> {
  // expected-error @below {{hlo.sort: axis 'a': dimension 's' must be whole on every device}}
  %0 = hlo.sort %x dim 0 {dist.layout = [#dist.layout<[{"a"}]>]} : (tensor<4xf64>) -> tensor<4xf64>
  func.return %0 : tensor<4xf64>
}
