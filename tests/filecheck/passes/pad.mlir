// RUN: rhino-opt %s -p 'pad{multiple=4}' --verify-equivalence | filecheck %s
// RUN: rhino-opt %s -p 'pad{extents="6:7"}' --verify-equivalence | filecheck %s --check-prefix=BATCH
// RUN: rhino-opt %s -p 'pad{multiple=2}' --verify-equivalence | filecheck %s --check-prefix=EVEN
// RUN: rhino-opt %s -p autodiff,optimizer,fold-constants,canonicalize,cse,dce,pad{multiple=4},place{mesh=tp=4},spmd | filecheck %s --check-prefix=STEP

// The vocabulary of 5 and the batch of 6 grow to 8, the 8 features stay. What stands behind the 5 is hidden from the
// maximum, what stands behind the 6 from the sum; the look-up ends where the vocabulary ends.
// CHECK: @main(%w: tensor<8x8xf32> {{.*}}rhino.extent = array<i64: 5, 8>}, %h: tensor<8x8xf32> {{.*}}rhino.extent = array<i64: 6, 8>}
// CHECK-SAME: %t: tensor<8x1xi64> {{.*}}rhino.extent = array<i64: 6, 1>}
// CHECK-SAME: -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}, tensor<6xf32>
// CHECK: %[[Y:.*]] = hlo.dot_general {{.*}} -> tensor<8x8xf32>
// CHECK: dense<0xFF800000>
// CHECK: hlo.constant dense<5> : tensor<8xi64>
// CHECK: %[[IN:.*]] = hlo.broadcast_in_dim %{{.*}} dims [1] : tensor<8xi1> -> tensor<8x8xi1>
// CHECK: %[[Z:.*]] = hlo.select %[[IN]], %[[Y]]
// CHECK: hlo.reduce "max" %[[Z]] dims [1]
// CHECK: hlo.constant dense<4> : tensor<8xi64>
// CHECK: hlo.minimum
// CHECK: hlo.gather {{.*}} sizes [1, 1]
// CHECK: hlo.constant dense<6> : tensor<8xi64>
// CHECK: hlo.select
// CHECK: hlo.reduce "sum"
// CHECK: hlo.slice %{{.*}} start [0] limit [6] strides [1] : tensor<8xf32> -> tensor<6xf32>

// The sum needs its zeros; along the batch nothing else combines.
// BATCH: %w: tensor<5x8xf32> {rhino.name = "w", rhino.role = "parameter"}, %h: tensor<7x8xf32>
// BATCH: hlo.reduce "max" %y dims [1] : tensor<7x5xf32>
// BATCH: hlo.select
// BATCH: hlo.reduce "sum"

// EVEN: %w: tensor<6x8xf32> {{.*}}, %h: tensor<6x8xf32> {rhino.name = "h", rhino.role = "input"}

// What replaces a parameter or a state has zeros behind its extent again.
// STEP: %w: tensor<8x8xf32>
// STEP-SAME: -> ({{.*}}tensor<8x8xf32> {rhino.name = "w", rhino.role = "parameter", rhino.alias = 0 : i64, rhino.extent = array<i64: 5, 8>
func.func @main(%w: tensor<5x8xf32> {rhino.name = "w", rhino.role = "parameter"},
                %h: tensor<6x8xf32> {rhino.name = "h", rhino.role = "input"},
                %t: tensor<6x1xi64> {rhino.name = "t", rhino.role = "input"})
    -> (tensor<f32> {rhino.name = "loss", rhino.role = "loss"}, tensor<6xf32> {rhino.name = "top", rhino.role = "output"}) {
  %y = hlo.dot_general %h, %w batch [] x [] contract [1] x [1] : (tensor<6x8xf32>, tensor<5x8xf32>) -> tensor<6x5xf32>
  %m = hlo.reduce "max" %y dims [1] : tensor<6x5xf32> -> tensor<6xf32>
  %g = hlo.gather %y, %t offset [] collapsed [1] batching [0] x [0] map [1] vector 1 sizes [1, 1]
    : (tensor<6x5xf32>, tensor<6x1xi64>) -> tensor<6xf32>
  %d = hlo.sub %g, %m : tensor<6xf32>
  %l = hlo.reduce "sum" %d dims [0] : tensor<6xf32> -> tensor<f32>
  func.return %l, %m : tensor<f32>, tensor<6xf32>
}
