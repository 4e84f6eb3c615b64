// RUN: rhino-opt %s -p 'microbatch{count=2},propagate{mesh=dp=3},spmd,fuse-collectives' --verify-equivalence | filecheck %s

// What a device holds of the batch is split into what it does of the micro-batches: nothing is sent but sums.
// CHECK: %x: tensor<2x4xf32>
// CHECK: hlo.reshape %x {{.*}} -> tensor<1x2x4xf32>
// CHECK-NOT: dist.all_gather
// CHECK-NOT: dist.all_to_all
// CHECK: dist.all_reduce

builtin.module {
  func.func @main(%w: tensor<4xf32> {rhino.name = "w", rhino.role = "parameter"}, %x: tensor<6x4xf32> {rhino.name = "x", rhino.role = "input", dist.layout = #dist.layout<[{"dp"}, {}]>}, %m: tensor<6xf32> {rhino.name = "m", rhino.role = "input"}) -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}, tensor<4xf32> {rhino.name = "w", rhino.role = "parameter", rhino.alias = 0 : i64}) {
    %y = hlo.dot_general %x, %w batch [] x [] contract [1] x [0] : (tensor<6x4xf32>, tensor<4xf32>) -> tensor<6xf32>
    %e = hlo.mul %y, %m : tensor<6xf32>
    %s = hlo.mul %e, %y : tensor<6xf32>
    %l = hlo.reduce "sum" %s dims [0] : tensor<6xf32> -> tensor<f32>
    %n = hlo.reduce "sum" %m dims [0] : tensor<6xf32> -> tensor<f32>
    %loss = hlo.div %l, %n : tensor<f32>
    %b = hlo.broadcast_in_dim %n dims [] : tensor<f32> -> tensor<6xf32>
    %d = hlo.div %e, %b : tensor<6xf32>
    %g = hlo.dot_general %d, %x batch [] x [] contract [0] x [0] : (tensor<6xf32>, tensor<6x4xf32>) -> tensor<4xf32>
    %v = hlo.sub %w, %g : tensor<4xf32>
    func.return %loss, %v : tensor<f32>, tensor<4xf32>
  }
}
