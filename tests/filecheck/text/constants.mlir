// RUN: rhino-opt %s | filecheck %s
// RUN: rhino-opt %s | rhino-opt | filecheck %s
// RUN: rhino-opt %s --generic | rhino-opt | filecheck %s

// CHECK-LABEL: func.func @main
func.func @main() {
  // CHECK: dense<0xFF800000> : tensor<f32>
  %0 = hlo.constant dense<0xFF800000> : tensor<f32>
  // CHECK: dense<[0x7FC00000, 1.0, -0.0, 0.1]> : tensor<4xf32>
  %1 = hlo.constant dense<[0x7FC00000, 1.0, -0.0, 0.1]> : tensor<4xf32>
  // CHECK: dense<3.0> : tensor<1000000x1000000xf32>
  %2 = hlo.constant dense<3.0> : tensor<1000000x1000000xf32>
  // CHECK: dense<0xFF80> : tensor<2x2xbf16>
  %3 = hlo.constant dense<0xFF80> : tensor<2x2xbf16>
  // CHECK: dense<0.1> : tensor<2xbf16>
  %4 = hlo.constant dense<[0.1, 0.1]> : tensor<2xbf16>
  // CHECK: dense<[true, false]> : tensor<2xi1>
  %5 = hlo.constant dense<[true, 0]> : tensor<2xi1>
  // CHECK: dense<[true, false, true, true, false, false, false, false, true]> : tensor<9xi1>
  %6 = hlo.constant dense<"0x0D01"> : tensor<9xi1>
  // CHECK: dense<-1> : tensor<3xi8>
  %7 = hlo.constant dense<255> : tensor<3xi8>
  // CHECK: dense<> : tensor<0x3xf32>
  %8 = hlo.constant dense<> : tensor<0x3xf32>
  // CHECK: dense<{{\[\[}}1, 2], [3, 4]]> : tensor<2x2xi64>
  %9 = hlo.constant dense<[[1, 2], [3, 4]]> : tensor<2x2xi64>
  // CHECK: dense<[1.0e-45, 3.4028235e+38]> : tensor<2xf32>
  %10 = hlo.constant dense<[1.0e-45, 3.4028235e38]> : tensor<2xf32>
  func.return
}
