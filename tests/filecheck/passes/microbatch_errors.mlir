// RUN: not rhino-opt %s -p 'microbatch{count=2}' 2>&1 | filecheck %s
// RUN: not rhino-opt %s -p 'microbatch{count=2 batch=y:0}' 2>&1 | filecheck %s --check-prefix=NAME

// What is computed from the parameters and the whole batch is needed before the micro-batches are done.
// CHECK: micro-batches cannot run one after another: sub needs what hlo.reduce makes of the whole batch
// CHECK: remedy: the step must see its batch as one

// NAME: 'y:0' is no dimension of an input

builtin.module {
  func.func @main(%w: tensor<4xf32> {rhino.name = "w", rhino.role = "parameter"}, %x: tensor<6x4xf32> {rhino.name = "x", rhino.role = "input"}) -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}) {
    %y = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6xf32>
    %m = hlo.reduce "max" %y dims [0] : tensor<6xf32> -> tensor<f32>
    %b = hlo.broadcast_in_dim %m dims [] : tensor<f32> -> tensor<6xf32>
    %d = hlo.sub %y, %b : tensor<6xf32>
    %l = hlo.reduce "sum" %d dims [0] : tensor<6xf32> -> tensor<f32>
    func.return %l : tensor<f32>
  }
}
