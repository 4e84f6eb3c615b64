// RUN: rhino-opt %s -p 'microbatch{count=2}' --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'microbatch{count=3 batch=x:0}' --verify-equivalence | filecheck %s --check-prefix=THREE
// RUN: not rhino-opt %s -p 'microbatch{count=4}' 2>&1 | filecheck %s --check-prefix=UNEVEN

// The count of what the mask lets through depends on data alone: it is there before the first micro-batch, whole.
// CHECK: @main(%w: tensor<4xf32> {{.*}}, %x: tensor<6x4xf32> {{.*}}, %m: tensor<6xf32>
// CHECK: %[[R0:.*]] = hlo.reshape %x {{.*}} -> tensor<3x2x4xf32>
// CHECK: %[[P0:.*]] = hlo.slice %[[R0]] start [0, 0, 0] limit [3, 1, 4]
// CHECK: %[[X0:.*]] = hlo.reshape %[[P0]] {{.*}} -> tensor<3x4xf32>
// CHECK: %[[Y0:.*]] = hlo.dot_general %[[X0]], %w {{.*}} {rhino.micro = "0.2"} {{.*}} -> tensor<3xf32>
// CHECK: hlo.reshape %m {{.*}} -> tensor<3x2xf32>
// CHECK: %[[M0:.*]] = hlo.reshape %{{.*}} -> tensor<3xf32>
// CHECK: %[[E0:.*]] = hlo.mul %[[Y0]], %[[M0]]
// CHECK: %[[S0:.*]] = hlo.mul %[[E0]], %[[Y0]]
// CHECK: %[[L0:.*]] = hlo.reduce "sum" %[[S0]]
// CHECK: %[[N:.*]] = hlo.reduce "sum" %m dims [0] : tensor<6xf32> -> tensor<f32>
// CHECK: %[[N0:.*]] = hlo.broadcast_in_dim %[[N]] dims [] {{.*}} -> tensor<3xf32>
// CHECK: %[[D0:.*]] = hlo.div %[[E0]], %[[N0]]
// CHECK: %[[G0:.*]] = hlo.dot_general %[[D0]], %[[X0]]
// CHECK: hlo.slice %{{.*}} start [0, 1, 0] limit [3, 2, 4]
// CHECK: %[[L1:.*]] = hlo.reduce "sum"
// CHECK: %[[L:.*]] = hlo.add %[[L0]], %[[L1]]
// CHECK: %[[G1:.*]] = hlo.dot_general
// CHECK: %[[G:.*]] = hlo.add %[[G0]], %[[G1]]
// CHECK: hlo.div %[[L]], %[[N]]
// CHECK: hlo.sub %w, %[[G]]

// THREE: start [0, 0, 0] limit [2, 1, 4]
// THREE: start [0, 1, 0] limit [2, 2, 4]
// THREE: start [0, 2, 0] limit [2, 3, 4]

// UNEVEN: 4 micro-batches do not divide the batch of 6 (dimension 0 of x)
// UNEVEN: remedy: 6 is divided by 2, 3, 6

builtin.module {
  func.func @main(%w: tensor<4xf32> {rhino.name = "w", rhino.role = "parameter"}, %x: tensor<6x4xf32> {rhino.name = "x", rhino.role = "input"}, %m: tensor<6xf32> {rhino.name = "m", rhino.role = "input"}) -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}, tensor<4xf32> {rhino.name = "w", rhino.role = "parameter", rhino.alias = 0 : i64}) {
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
