// RUN: rhino-opt %s --split-input-file --verify-diagnostics -p cse

// The placed stage: every layout follows from the rule of its op.
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32> {dist.layout = #dist.layout<[{"a"}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<[{}]>}) {
  %0 = dist.reshard %x to #dist.layout<[{}]> : tensor<4xf32>
  // expected-error @below {{result 0 does not have the layout that follows from the operands: operands [{}], results [{"a"}]}}
  %1 = hlo.exp %0 {dist.layout = [#dist.layout<[{"a"}]>]} : tensor<4xf32>
  func.return %1 : tensor<4xf32>
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32> {dist.layout = #dist.layout<[{"a"}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<[{}]>}) {
  %0 = hlo.exp %x {dist.layout = [#dist.layout<[{"a"}]>]} : tensor<4xf32>
  // expected-error @below {{operand 0 has layout [{"a"}], but @main promises [{}]}}
  func.return %0 : tensor<4xf32>
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<4xf32> {dist.layout = #dist.layout<[{"a"}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<[{}]>}) {
  %0 = dist.reshard %x to #dist.layout<[{}]> : tensor<4xf32>
  // expected-error @below {{hlo.exp: has no dist.layout}}
  %1 = hlo.exp %0 : tensor<4xf32>
  func.return %1 : tensor<4xf32>
}

// -----
dist.mesh @mesh = <["a"=2]>
// A reshard cannot make a value partial.
func.func @main(%x: tensor<4xf32> {dist.layout = #dist.layout<[{}]>}) -> (tensor<4xf32> {dist.layout = #dist.layout<[{}] partial {"a": sum}>}) {
  // expected-error @below {{a tensor that is replicated cannot become partial sum}}
  %0 = dist.reshard %x to #dist.layout<[{}] partial {"a": sum}> : tensor<4xf32>
  func.return %0 : tensor<4xf32>
}

// -----
// The local stage: the boundary says what the arrays are parts of, and no reshard is left.
dist.mesh @mesh = <["a"=2]>
// expected-error @below {{argument 0 of @main is f32[4], but f32[4] in layout [{"a"}] is f32[2] on every device}}
func.func @main(%x: tensor<4xf32> {dist.layout = #dist.layout<[{"a"}]>, dist.global_type = tensor<4xf32>}) -> (tensor<4xf32> {dist.layout = #dist.layout<[{}]>, dist.global_type = tensor<4xf32>}) {
  func.return %x : tensor<4xf32>
}

// -----
dist.mesh @mesh = <["a"=2]>
func.func @main(%x: tensor<2xf32> {dist.layout = #dist.layout<[{"a"}]>, dist.global_type = tensor<4xf32>}) -> (tensor<2xf32> {dist.layout = #dist.layout<[{"a"}]>, dist.global_type = tensor<4xf32>}) {
  // expected-error @below {{dist.reshard: has no place in a local program}}
  %0 = dist.reshard %x to #dist.layout<[{}]> : tensor<2xf32>
  func.return %0 : tensor<2xf32>
}
