// RUN: rhino-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{mesh axis named twice in a=2,a=2}}
dist.mesh @mesh = <["a"=2, "a"=2]>

// -----
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{dist.all_reduce: the module has no mesh}}
  %0 = dist.all_reduce sum %x over ["a"] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{mesh a=2 has no axis 'b'}}
  %0 = dist.all_reduce sum %x over ["b"] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=8]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{the axes ["a", "a":(1)2] overlap}}
  %0 = dist.all_reduce sum %x over ["a", "a":(1)2] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=8]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{"a":(1)3 is no part of axis 'a' of size 8}}
  %0 = dist.axis_index ["a":(1)3] : tensor<i64>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{operand 0 of type f32[4] has no 'and'}}
  %0 = dist.all_reduce and %x over ["a"] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{mean}}
  %0 = dist.all_reduce mean %x over ["a"] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{operand 0 of type f32[4] in groups of 2 gives f32[8], but the result has type f32[4]}}
  %0 = dist.all_gather %x dim 0 over ["a"] period 4 : tensor<4xf32> -> tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{joined to [8]: dim 0 of extent 8 has no digit of 2 members with period 3}}
  %0 = dist.all_gather %x dim 0 over ["a"] period 3 : tensor<4xf32> -> tensor<8xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{operand 0 of type f32[4] has no dim 1}}
  %0 = dist.shard %x dim 1 over ["a"] : tensor<4xf32> -> tensor<2xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=3]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{dim 0 of extent 4 has no digit of 3 members with period 4}}
  %0 = dist.reduce_scatter sum %x dim 0 over ["a"] : tensor<4xf32> -> tensor<2xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4x4xf32>) {
  // expected-error @below {{operand 0 of type f32[4, 4] in groups of 2 gives f32[8, 2], but the result has type f32[2, 8]}}
  %0 = dist.all_to_all %x cut 1 join 0 over ["a"] : tensor<4x4xf32> -> tensor<2x8xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{the targets [0, 0] are no permutation of the mesh's 2 ranks}}
  %0 = dist.permute %x over ["a"] to [0, 0] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2, "b"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{ranks 0 and 2 are not in one group over the axes}}
  %0 = dist.permute %x over ["b"] to [2, 3, 0, 1] : tensor<4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32>) {
  // expected-error @below {{the result has type f32[] instead of i64[]}}
  %0 = dist.axis_index ["a"] : tensor<f32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<3xf32> {dist.layout = #dist.layout<[{}]>}) {
  // expected-error @below {{operand 0 of type f32[3] cannot take the layout}}
  %0 = dist.reshard %x to #dist.layout<[{"a"}]> : tensor<3xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
// expected-error @below {{cannot read layout}}
func.func @main(%x: tensor<3xf32> {dist.layout = #dist.layout<["a"]>}) {
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<3xf32>) {
  // expected-error @below {{expected a #dist.layout}}
  %0 = dist.reshard %x to #dist.axes<["a"]> : tensor<3xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4x4xf32>) {
  // expected-error @below {{edges of 5 and 0 elements do not lie within one neighbour: dim 0 of operand 0 of type f32[4, 4] has 4}}
  %0 = dist.halo sum %x dim 0 over ["a"] low 5 high 0 : tensor<4x4xf32> -> tensor<9x4xf32>
  func.return
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4x4xf32>) {
  // expected-error @below {{operand 0 of type f32[4, 4] in groups of 2 gives f32[6, 4], but the result has type f32[4, 4]}}
  %0 = dist.halo sum %x dim 0 over ["a"] low 1 high 1 : tensor<4x4xf32> -> tensor<4x4xf32>
  func.return
}
