// RUN: rhino-opt %s -p place --split-input-file --verify-diagnostics

// expected-error @below {{no mesh was given and the module has none}}
func.func @main(%x: tensor<8xf64>) -> tensor<8xf64> {
  func.return %x : tensor<8xf64>
}

// -----
// A pin on an op is the layout in which the op itself yields its result: exp cannot make it partial.
dist.mesh @mesh = <["dp"=2]>
func.func @main(%x: tensor<8xf64>) -> tensor<8xf64> {
  // expected-error @below {{hlo.exp: cannot yield its pinned layout}}
  %0 = hlo.exp %x {dist.layout = [#dist.layout<[{}] partial {"dp": sum}>]} : tensor<8xf64>
  func.return %0 : tensor<8xf64>
}

// -----
dist.mesh @mesh = <["dp"=3]>
// expected-error @below {{dim 0 of extent 8: "dp" of size 3 does not divide the 8 that are left to it}}
func.func @main(%x: tensor<8xf64> {dist.layout = #dist.layout<[{"dp"}]>}) -> tensor<8xf64> {
  func.return %x : tensor<8xf64>
}

// -----
dist.mesh @mesh = <["dp"=2]>
func.func @main(%x: tensor<8xf64>) -> tensor<8xf64> {
  // expected-error @below {{hlo.composite: cannot be placed}}
  %0 = hlo.composite "double"(%x) : (tensor<8xf64>) -> tensor<8xf64> {
  ^bb0(%y: tensor<8xf64>):
    %1 = hlo.add %y, %y : tensor<8xf64>
    hlo.yield %1 : tensor<8xf64>
  }
  func.return %0 : tensor<8xf64>
}
